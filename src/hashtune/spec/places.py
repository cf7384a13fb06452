"""Where a path that the spec names leads."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hashtune.errors import Finding
from hashtune.spec.rows import remote_scheme

PARAMS = "params.yaml"


def place(root: Path, uri: str) -> tuple[Path, bool]:
    """Where a path leads, links followed, and whether a file is there."""
    try:
        path = (root / uri).resolve()
        return path, path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a NUL
        return root.resolve(), False


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
