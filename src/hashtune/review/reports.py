"""A report of a revision, or the finding that names it."""

from pathlib import Path
from typing import Any

from hashtune.lineage.reports import parse_report


def read_report(root: Path, file: str) -> dict[str, Any] | None:
    """The JSON object in a file below a revision's folder, None where there is no file.

    Raises:
        InputError: as `parse_report`.
    """
    if not (root / file).is_file():
        return None
    return parse_report((root / file).read_bytes(), file=file, where=f"in the {root.name}: ")
