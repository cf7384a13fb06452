"""A change as the notices see it: settings, rows, and what is wrong with the head by itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hashtune.errors import Finding
from hashtune.review.consequences import Group
from hashtune.review.recorded import Foreign
from hashtune.review.rows import RowDifference
from hashtune.review.settings import Change

SHOWN = 4  # names of a list


@dataclass(frozen=True, slots=True)
class Case:
    """A change as the notices see it."""

    changes: Mapping[str, Change]
    rows: Mapping[str, RowDifference]
    base: Mapping[str, Any]
    head: Mapping[str, Any]
    not_rerun: list[str] = field(default_factory=list)
    no_lock: bool = False
    stale_stamp: bool = False
    libraries: bool = False
    leaks: int = 0
    invalid: Sequence[Finding] = ()
    diverged: bool = False
    foreign: Mapping[str, Foreign] = field(default_factory=dict)  # "head" and "base"
    safeguards: Sequence[str] = ()

    def touched(self, *prefixes: str) -> list[str]:
        """Changed settings and data roles at or below one of the dotted prefixes, without those
        that change names only."""
        named = [name for name, change in self.changes.items() if change.groups != (Group.NAMES,)]
        names = [*named, *(role for role in self.rows if role not in self.changes)]
        return [
            name
            for name in names
            if any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
        ]


def listed(names: Iterable[str]) -> str:
    """Names as code, the first few, and how many more."""
    shown = [f"`{name}`" for name in names]
    rest = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + rest


def is_number(value: object) -> bool:
    """Whether it is one, true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
