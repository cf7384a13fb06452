"""Which examples, rows or ledger lines: what does not exist is named, with what does."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from hashtune.errors import Finding, InputError, nearest

SHOW = "name an example that is there; `hashtune inspect` shows some with their ids"
NONE = "reports/prepare.json and reports/tokenize.json say what was dropped"  # where nothing is


def by_id(wanted: Sequence[str], known: Sequence[str], *, file: str) -> list[int]:
    """Places of the wanted ids; InputError names the nearest known one for each that is missing."""
    places = {name: place for place, name in enumerate(known)}
    missing = [
        Finding(
            "no-example",
            f"has no example {name!r}{_nearest_id(name, known)}",
            file=file,
            fix=SHOW if known else NONE,
        )
        for name in wanted
        if name not in places
    ]
    if missing:
        raise InputError(missing)
    return [places[name] for name in wanted]


def _nearest_id(name: str, known: Sequence[str]) -> str:
    if not known:
        return " (it is empty)"

    def likeness(other: str) -> int:
        return _same_start(name, other) + _same_start(name[::-1], other[::-1])

    return f"; the nearest of its {len(known)} is {max(known, key=likeness)!r}"


def _same_start(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def by_number(wanted: Sequence[int], *, first: int, count: int, noun: str, file: str) -> list[int]:
    """Places (from 0) of things numbered from `first`; InputError says which numbers there are."""
    known = f"{first} to {first + count - 1}" if count else "none"
    fix = f"give a {noun} from {known}" if count else NONE
    missing = [
        Finding("no-number", f"has no {noun} {number}; there are {known}", file=file, fix=fix)
        for number in wanted
        if not first <= number < first + count
    ]
    if missing:
        raise InputError(missing)
    return [number - first for number in wanted]


def longest(lengths: Sequence[int], count: int) -> list[int]:
    """Places of the longest, longest first, equal ones in order."""
    return sorted(range(len(lengths)), key=lambda place: -lengths[place])[:count]


def at_random(total: int, count: int, *, seed: int) -> list[int]:
    """Places drawn without replacement, the same for the same seed."""
    return random.Random(seed).sample(range(total), min(total, count))


def by_reason(reason: str, ledger: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Ledger lines of one reason; InputError names the reasons that occur, with their counts."""
    counts = Counter(line["reason"] for line in ledger)
    if reason in counts:
        return [line for line in ledger if line["reason"] == reason]
    known = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    message = f"nothing was dropped for {reason!r}; " + (
        f"reasons: {known}" if known else "nothing was dropped at all"
    )
    fix = nearest(reason, counts) if counts else "leave --dropped away"
    raise InputError(Finding("no-reason", message, fix=fix))
