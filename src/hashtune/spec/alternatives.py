"""pydantic's errors in the words of the spec, those about one field of several kinds as one.

Where a field may be of several kinds (a list or a text), pydantic gives an error for each, with the
kind's name inside the path: method.targets.list[str][0]. Names of kinds are what the data does not
hold at that place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

Path = tuple[Any, ...]
BEGINNING = "Input should be "


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at a path of the spec. `kind` is pydantic's name of the error."""

    path: Path
    message: str
    kind: str


def faults(error: ValidationError, prefix: Path, params: Mapping[str, Any]) -> list[Fault]:
    """The faults that the error names, in its order.

    Args:
        error: of validating what lies at `prefix`.
        prefix: path of that part in the whole spec, of mappings.
        params: the whole spec as it was read.
    """
    found: dict[object, list[tuple[Path, Any]]] = {}
    for number, item in enumerate(error.errors(include_url=False)):
        missing = item["type"] == "missing"
        path, several = _paths(prefix, item["loc"], params, missing=missing)
        found.setdefault(number if several is None else several, []).append((path, item))
    return [fault for errors in found.values() for fault in _told(errors)]


def _paths(prefix: Path, loc: Path, params: Any, *, missing: bool) -> tuple[Path, Path | None]:
    """The path in the spec, and that of the first field of several kinds on it."""
    value = params
    for part in prefix:
        value = value.get(part)
    path, several = prefix, None
    for index, part in enumerate(loc):
        if _holds(value, part):
            value, path = value[part], (*path, part)
        elif missing and index == len(loc) - 1:
            path = (*path, part)
        elif several is None:
            several = path
    return path, several


def _holds(value: Any, part: Any) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _told(errors: list[tuple[Path, Any]]) -> list[Fault]:
    """One fault per path; of several kinds only those that the value is nearest to, by the depth
    of what they refuse."""
    shallow = min(len(path) for path, _ in errors)
    deeper = [(path, item) for path, item in errors if len(path) > shallow]
    by_path: dict[Path, list[Any]] = {}
    for path, item in deeper or errors:
        by_path.setdefault(path, []).append(item)
    return [Fault(path, _message(items), items[0]["type"]) for path, items in by_path.items()]


def _message(items: list[Any]) -> str:
    if items[0]["type"] == "missing":
        return "is missing"
    first, *others = dict.fromkeys(str(item["msg"]) for item in items)
    value = items[0]["input"]
    text = ", or ".join([first, *(other.removeprefix(BEGINNING) for other in others)])
    return f"{text}, got {type(value).__name__} {value!r}"
