"""Folders that are whole or absent, whatever ends the process or the machine.

A folder is written under a temporary name (.NAME.x.tmp), flushed, renamed; it is renamed again
before it is removed. What a kill leaves has such a name; the next writer of the folder removes it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEFTOVERS = ("????????.tmp", "????????.old.tmp", "removed.tmp")  # tempfile draws eight letters


def fsync_directory(path: Path) -> None:
    """Make the names in this folder survive a power loss."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents; their names survive a power loss."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        fsync_directory(folder.parent)


def remove_leftovers(file: Path) -> None:
    """Remove what a kill left of earlier writes of a file that one process at a time writes."""
    for left in file.parent.glob(f".{file.name}.????????.tmp"):
        left.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder: whole under its name, or gone, wherever a crash comes between."""
    aside = path.with_name(f".{path.name}.removed.tmp")  # no new folder: the disk may be full
    if aside.exists():
        shutil.rmtree(aside)
    path.replace(aside)
    shutil.rmtree(aside)


@contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """A temporary sibling folder that replaces `target` when the block ends without an error.

    All of it is on disk before the renames. An old target is moved aside and comes back when the
    second rename fails; a crash between the two leaves no target, never half of one. One process at
    a time writes a target: what a kill left of an earlier one is removed.
    """
    make_folder(target.parent)
    for pattern in LEFTOVERS:
        for folder in target.parent.glob(f".{target.name}.{pattern}"):
            shutil.rmtree(folder)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    aside = temporary.with_suffix(".old.tmp")
    try:
        yield temporary
        temporary.chmod(0o755)
        _fsync_tree(temporary)
        if target.exists():
            target.replace(aside)
        try:
            temporary.replace(target)
        except OSError:
            if aside.exists():
                aside.replace(target)
            raise
        fsync_directory(target.parent)
    finally:
        for folder in (temporary, aside):
            shutil.rmtree(folder, ignore_errors=True)


def _fsync_tree(folder: Path) -> None:
    """Flush each file below, then each folder, the innermost first."""
    found = sorted(folder.rglob("*"), reverse=True)
    for file in (path for path in found if path.is_file()):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    for inner in (*(path for path in found if path.is_dir()), folder):
        fsync_directory(inner)
