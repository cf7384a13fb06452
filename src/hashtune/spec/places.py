"""Where a path that the spec names leads."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hashtune.errors import Finding, nearest
from hashtune.spec.rows import remote_scheme

PARAMS = "params.yaml"


def place(root: Path, uri: str) -> tuple[Path, bool]:
    """Where a path leads, links followed, and whether a file is there."""
    try:
        path = (root / uri).resolve()
        return path, path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a NUL
        return root.resolve(), False


def absence(root: Path, uri: str) -> tuple[str, str | None]:
    """(message, fix) for a path below the root that is no file."""
    path = root / uri
    try:
        if path.is_dir():
            return "is a folder", "name one file in it"
        return "does not exist", _way_back(path, root)
    except (OSError, ValueError):  # a name too long, a NUL
        return "cannot be the name of a file", None


def _way_back(path: Path, root: Path) -> str | None:
    tracked = (part for part in (path, *path.parents) if part.is_relative_to(root) and part != root)
    for part in tracked:  # DVC keeps a file or a folder that holds it
        if (pointer := part.with_name(f"{part.name}.dvc")).is_file():
            return f"dvc pull {pointer.relative_to(root).as_posix()}"
    if not path.parent.is_dir():
        return None
    siblings = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return nearest(path.name, siblings) if siblings else None


LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    """Whether Git LFS has left a pointer in the place of the file."""
    with path.open("rb") as handle:
        return handle.read(len(LFS_POINTER)) == LFS_POINTER


def folder_findings(
    folder: str, names: Sequence[str], *, root: Path, field: str, what: str, fix: str
) -> Iterator[Finding]:
    """A finding for each of the files that is not in the folder, or not in the project.

    Args:
        folder: as the spec names it.
        names: files that must lie in it.
        root: of the project.
        field: of the spec.
        what: the folder is, for the message.
        fix: where a file is missing.
    """
    if remote_scheme(folder):
        message = f"is a URL, and {what} lies in the project"
        yield Finding("outside-root", message, file=PARAMS, field=field, fix="put it under data/")
        return
    if not folder.strip():
        yield Finding("no-file", "is empty", file=PARAMS, field=f"{field}.path", fix=fix)
        return
    for name in names:
        path, there = place(root, f"{folder}/{name}")
        shown = f"'{folder}/{name}'"
        if not path.is_relative_to(root.resolve()):
            message, way = f"{shown} leaves the project", "put the folder under data/"
            yield Finding("outside-root", message, file=PARAMS, field=field, fix=way)
        elif not there:
            message = f"{shown} does not exist"
            yield Finding("no-file", message, file=PARAMS, field=field, fix=fix)
