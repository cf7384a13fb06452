"""Gains and losses per slice with intervals, and what the eval loss says of overfitting."""

from collections.abc import Sequence

from hashtune.evaluation.statistics import bootstrap_difference
from hashtune.report.charts import Mark, Span
from hashtune.report.runs import Pair, Points

CONFIDENCE, RESAMPLES, SEED = 0.95, 10_000, 0
RISE = 0.02  # a later eval loss counts as risen from this share above the best on


def slice_gains(pairs: Sequence[Pair]) -> list[Span]:
    """Mean gain (adapter less base) of each slice in name order, with one-sided 95 % bounds."""
    slices: dict[str, list[Pair]] = {}
    for pair in pairs:
        slices.setdefault(pair.slice, []).append(pair)
    return [_gain(name, slices[name]) for name in sorted(slices)]


def _gain(name: str, pairs: Sequence[Pair]) -> Span:
    found = bootstrap_difference(
        [pair.adapter_score for pair in pairs],
        [pair.base_score for pair in pairs],
        confidence=CONFIDENCE,
        resamples=RESAMPLES,
        seed=SEED,
    )
    return Span(f"{name} ({found.items})", found.point, found.lower, found.upper)


def loss_marks(losses: Points, chosen: int | None) -> list[Mark]:
    """The step of the adapter, and the first evaluation after the best that is RISE above it."""
    marks = [Mark(chosen, "adapter")] if chosen is not None else []
    if losses:
        best, lowest = min(losses, key=lambda point: (point[1], point[0]))
        risen = [step for step, loss in losses if step > best and loss > lowest * (1 + RISE)]
        marks += [Mark(risen[0], "overfitting")] if risen else []
    return marks
