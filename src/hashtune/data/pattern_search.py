"""Look for patterns in the rows of a file.

What was found is never printed: findings, ledger and report name the pattern and the field. A
pattern that takes longer than patience.SECONDS over one text is a finding, which refuses the run.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hashtune.data.patience import SECONDS, OutOfPatience, patience
from hashtune.data.patterns import Pattern
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped

FOUND = (
    "pattern-found",
    "pattern {} is found here",
    "take it out of the row, or set the list's action to drop",
)
SLOW = (
    "pattern-slow",
    f"pattern {{}} takes more than {SECONDS:g} s here and is not searched in what follows",
    "no repetition of a repetition in a pattern: write a+ for (a+)+",
)
Hits = list[tuple[Pattern, str]]


@dataclass(slots=True)
class Searched:
    """Rows without a match, those dropped, findings, and rows per pattern that matched."""

    kept: list[Conversation] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def search(
    conversations: Iterable[Conversation],
    patterns: Sequence[Pattern],
    *,
    shown: str,
    given_up: set[str],
) -> Searched:
    """Look for every pattern in every text of the rows of one file. `given_up` names patterns that
    are not searched any more; one that takes too long has a finding and joins them."""
    result = Searched()
    for row in conversations:
        hits, slow = _hits(row, patterns, given_up) if patterns else ([], [])
        result.counts.update({pattern.name for pattern, _ in hits})
        errors = [(pattern, where) for pattern, where in hits if pattern.action == "error"]
        for rule, message, fix, found in ((*FOUND, errors), (*SLOW, slow)):
            result.findings += [
                Finding(rule, message.format(pattern.name), shown, row.line, where, fix)
                for pattern, where in found
            ]
        if hits and not errors:
            pattern, where = hits[0]
            detail = f"{pattern.name} in {where}"
            result.dropped.append(Dropped(row.id, row.source, row.line, "pattern", detail))
        else:
            result.kept.append(row)
    return result


def _hits(row: Conversation, patterns: Sequence[Pattern], given_up: set[str]) -> tuple[Hits, Hits]:
    """(pattern, field path) of every text with a match, and of every text that took too long."""
    hits: Hits = []
    slow: Hits = []

    def is_found(text: str, where: str) -> bool:
        form = unicodedata.normalize("NFKC", text)
        before = len(hits)
        for pattern in patterns:
            if pattern.name in given_up:
                continue
            try:
                wait(SECONDS)
                if pattern.found_in(form):
                    hits.append((pattern, where))
            except OutOfPatience:
                given_up.add(pattern.name)
                slow.append((pattern, where))
        return len(hits) > before

    with patience() as wait:
        _walk(row.messages, "messages", is_found)
    return hits, slow


def _walk(value: object, path: str, is_found: Callable[[str, str], bool]) -> None:
    """Ask for every text, number and key of a JSON value; a key that is found is in no path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            hidden = is_found(key, f"{path} (a key)")
            _walk(inner, f"{path}.*" if hidden else f"{path}.{key}", is_found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _walk(inner, f"{path}[{index}]", is_found)
    elif isinstance(value, str):
        is_found(value, path)
    elif value is not None and not isinstance(value, bool):
        is_found(str(value), path)
