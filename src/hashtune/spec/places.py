"""Where a path that the spec names leads."""

from pathlib import Path


def place(root: Path, uri: str) -> tuple[Path, bool]:
    """Where a path leads, links followed, and whether a file is there."""
    try:
        path = (root / uri).resolve()
        return path, path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a NUL
        return root.resolve(), False
