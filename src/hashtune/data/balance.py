"""At most so many training rows per class: a value of the answer's JSON, or of `group`."""

import json
from array import array
from dataclasses import dataclass, field

import numpy as np

from hashtune import writers
from hashtune.data.filters import last_answer
from hashtune.data.mixture import REPLAY
from hashtune.data.split import take_first
from hashtune.data.table import Rows, Table, group_key
from hashtune.errors import Finding
from hashtune.records import Conversation
from hashtune.spec.schema import Balance

ANSWER = "answer."
EXCERPT = 40
NO_CLASS = -1


@dataclass(slots=True)
class Balanced:
    """The rows that stay, in their order; `classes` maps class -> [rows before, rows after]."""

    rows: Rows
    findings: list[Finding] = field(default_factory=list)
    classes: dict[str, list[int]] = field(default_factory=dict)


def class_of(conversation: Conversation, by: str) -> str | None:
    """The row's class as JSON text; None for a row that has none (no group, no such field)."""
    if by == "group":
        return None if conversation.group is None else group_key(conversation.group)
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


def balance(table: Table, rows: Rows, settings: Balance) -> Balanced:
    """Drop the rows of a class beyond the first max_rows in hash order. Replay and rows without a
    class are not counted; a finding when no row has one. Memory: every class once, 4 bytes a
    row."""
    if (settings.by is None) != (settings.max_rows is None):
        message = "by and max_rows are set together, or not at all"
        return Balanced(rows, findings=[Finding("balance", message, field="cleaning.balance")])
    if settings.by is None or settings.max_rows is None:
        return Balanced(rows)
    numbers: dict[str, int] = {}
    class_of_row = array("i")
    for row in map(table.conversation, rows):
        name = None if row.source == REPLAY else class_of(row, settings.by)
        class_of_row.append(NO_CLASS if name is None else numbers.setdefault(name, len(numbers)))
    classes = np.frombuffer(class_of_row, class_of_row.typecode)
    result = Balanced(rows)
    stays = np.ones(len(table), bool)
    for name in sorted(numbers):
        of_class = rows[classes == numbers[name]]
        kept, others = take_first(table, of_class, settings.max_rows)
        result.classes[name] = [len(of_class), len(kept)]
        table.drop(others, "balance", f"{settings.by}={name[:EXCERPT]}")
        stays[others] = False
    result.rows = rows[stays[rows]]
    if len(rows) and not numbers:
        message = f"no row has {settings.by}"
        result.findings.append(Finding("balance", message, field="cleaning.balance.by"))
    return result
