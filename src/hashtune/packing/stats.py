"""What packing saves and what a step holds: figures of reports/pack.json and of the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.packing.bins import lower_bound
from hashtune.packing.rows import trained_tokens
from hashtune.packing.steps import Step
from hashtune.records import IGNORE_INDEX, Row

DIGITS = 6


def row_stats(rows: Sequence[Row], *, max_seq_len: int) -> dict[str, Any]:
    """Counts of a split. Padding fractions are of rows padded to `max_seq_len`: before, with one
    example per row; after, as laid out. `lower_bound_rows` is ceil(tokens / max_seq_len).
    """
    lengths = [length for row in rows for length in row.lengths]
    tokens = sum(lengths)
    before, after = len(lengths) * max_seq_len, len(rows) * max_seq_len
    trained = sum(trained_tokens(row) for row in rows)
    return {
        "examples": len(lengths),
        "rows": len(rows),
        "lower_bound_rows": lower_bound(lengths, max_seq_len),
        "tokens": tokens,
        "trained_tokens": trained,
        "trained_share": _share(trained, tokens),
        "padding_fraction_before": _share(before - tokens, before),
        "padding_fraction_after": _share(after - tokens, after),
        "longest_document": max(lengths, default=0),
        "longest_row": max((sum(row.lengths) for row in rows), default=0),
    }


def step_stats(steps: Sequence[Step], *, rows_per_step: int) -> dict[str, Any]:
    """The effective batch: sequences and (trained) tokens per optimizer step, over the plan."""
    tokens = [step.tokens for step in steps]
    trained = [step.trained_tokens for step in steps]
    return {
        "steps": len(steps),
        "rows_per_step": rows_per_step,
        "partial_steps": sum(len(step.rows) < rows_per_step for step in steps),
        "tokens_seen": sum(tokens),
        "trained_tokens_seen": sum(trained),
        "tokens_per_step": _spread(tokens),
        "trained_tokens_per_step": _spread(trained),
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    if not values:
        return {"min": 0, "mean": 0, "max": 0}
    return {
        "min": min(values),
        "mean": round(sum(values) / len(values), DIGITS),
        "max": max(values),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, DIGITS) if whole else 0.0


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
