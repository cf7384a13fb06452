"""What decides memory and FLOPs of a step: its longest row, and the longest example. No numpy, so
that `hashtune plan` answers in a second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.records import IGNORE_INDEX


@dataclass(frozen=True, slots=True)
class StepShape:
    """What decides the memory and FLOPs of a step: the worst row, and the attention it needs.

    `row` is the number of the longest row, `longest_row` its tokens, `trained` the most targets in
    any row, `masked` whether a row holds several documents, `context` the mean length of the
    document a token lies in.
    """

    row: int
    longest_row: int
    trained: int
    masked: bool
    context: float


def step_shape(rows: Sequence[Mapping[str, Any]]) -> StepShape:
    """The worst case over all rows (dicts of records.row_schema; at least one)."""
    worst = max(rows, key=lambda row: (sum(row["lengths"]), -row["row"]))
    lengths = [length for row in rows for length in row["lengths"]]
    return StepShape(
        row=worst["row"],
        longest_row=sum(worst["lengths"]),
        trained=max(sum(label != IGNORE_INDEX for label in row["labels"]) for row in rows),
        masked=any(len(row["lengths"]) > 1 for row in rows),
        context=sum(length * length for length in lengths) / sum(lengths),
    )


def longest_example(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The longest document of all rows (dicts of records.row_schema; at least one): its example's
    id, its tokens, and the row it lies in; the first of equals."""
    documents = (
        (-length, row["row"], place, row["example_ids"][place])
        for row in rows
        for place, length in enumerate(row["lengths"])
    )
    tokens, row, _, name = min(documents)
    return {"id": name, "tokens": -tokens, "row": row}
