"""A report of a revision, or the finding that names it."""

import json
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.writers import read_json


def read_report(root: Path, file: str) -> dict[str, Any] | None:
    """The JSON object in a file below a revision's folder, None where there is no file.

    Raises:
        InputError: it is damaged, or no object.
    """
    if not (root / file).is_file():
        return None
    try:
        report = read_json(root / file)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _broken(root, file, str(error)) from error
    if not isinstance(report, dict):
        raise _broken(root, file, "is no JSON object")
    return report


def _broken(root: Path, file: str, reason: str) -> InputError:
    message = f"in the {root.name}: {reason}"
    fix = "`dvc repro` or `git checkout` gives a whole one; commit it"
    return InputError(Finding("broken-report", message, file=file, fix=fix))
