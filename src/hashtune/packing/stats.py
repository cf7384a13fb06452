"""What packing saves and what a step holds: figures of reports/pack.json."""

from collections.abc import Sequence
from typing import Any

from hashtune.packing.bins import lower_bound
from hashtune.packing.rows import trained_tokens
from hashtune.packing.steps import Step
from hashtune.records import Row

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
