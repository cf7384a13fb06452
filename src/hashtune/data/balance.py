"""At most so many training rows per class: a value of the answer's JSON, or of `group`."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hashtune import writers
from hashtune.data.filters import last_answer
from hashtune.data.mixture import REPLAY
from hashtune.data.split import take_first
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Balance

ANSWER = "answer."
EXCERPT = 40
CLASSES_IN_REPORT = 50


@dataclass(slots=True)
class Balanced:
    """The rows that stay, in their order; `classes` maps class -> [rows before, rows after]."""

    rows: list[Conversation]
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    classes: dict[str, list[int]] = field(default_factory=dict)


def class_of(conversation: Conversation, by: str) -> str | None:
    """The row's class as JSON text; None for a row that has none (no group, no such field)."""
    if by == "group":
        return conversation.group
    try:
        answer = json.loads(last_answer(conversation))
    except (json.JSONDecodeError, RecursionError):
        return None
    key = by.removeprefix(ANSWER)
    if not isinstance(answer, dict) or key not in answer:
        return None
    value = answer[key]
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    try:
        return writers.canonical_json(value, indent=None).strip()
    except ValueError:  # NaN, which json.loads lets pass
        return repr(value)


def balance(rows: Sequence[Conversation], settings: Balance) -> Balanced:
    """Drop the rows of a class beyond the first max_rows in hash order. Replay and rows without a
    class are not counted; a finding when no row has one."""
    if (settings.by is None) != (settings.max_rows is None):
        message = "by and max_rows are set together, or not at all"
        return Balanced(
            list(rows), findings=[Finding("balance", message, field="cleaning.balance")]
        )
    if settings.by is None or settings.max_rows is None:
        return Balanced(list(rows))
    classes: dict[str, list[Conversation]] = defaultdict(list)
    for row in rows:
        name = None if row.source == REPLAY else class_of(row, settings.by)
        if name is not None:
            classes[name].append(row)
    result = Balanced([])
    gone: set[tuple[str, int, str]] = set()
    for name in sorted(classes):
        kept, others = take_first(classes[name], settings.max_rows)
        result.classes[name] = [len(classes[name]), len(kept)]
        detail = f"{settings.by}={name[:EXCERPT]}"
        result.dropped += [Dropped(c.id, c.source, c.line, "balance", detail) for c in others]
        gone |= {(c.source, c.line, c.id) for c in others}
    result.rows = [row for row in rows if (row.source, row.line, row.id) not in gone]
    if rows and not classes:
        message = f"no row has {settings.by}"
        result.findings.append(Finding("balance", message, field="cleaning.balance.by"))
    return result
