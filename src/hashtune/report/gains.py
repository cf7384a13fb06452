"""Gains and losses per slice with intervals, and what the eval loss says of overfitting."""

from collections.abc import Sequence

from hashtune.evaluation.statistics import Interval, difference_interval
from hashtune.evaluation.verdicts import RESAMPLES, SEED
from hashtune.report.charts import Mark, Span
from hashtune.report.runs import Pair, Points

ADAPTER, BEST = "adapter", "lowest eval loss"
RISE = 0.02  # a later eval loss counts as risen from this share above the best on


def task_gains(pairs: Sequence[Pair], *, confidence: float) -> list[Span]:
    """Mean gain (adapter less base) of each field of the test items in name order, with one-sided
    bounds.

    By the gate's own function, resamples and seed, so that page and gate say one thing.
    """
    fields = sorted({name for pair in pairs for name in pair.fields})
    found = []
    for name in fields:
        scores = [pair.fields[name] for pair in pairs if name in pair.fields]
        gain = _interval([new for _, new in scores], [old for old, _ in scores], confidence)
        found.append(Span(f"task.{name} ({gain.items})", gain.point, gain.lower, gain.upper))
    return found


def slice_gains(pairs: Sequence[Pair], *, confidence: float) -> list[Span]:
    """Mean gain of each slice of the suites in name order, with one-sided bounds: the drop that the
    gate weighs, with its sign turned."""
    slices: dict[str, list[Pair]] = {}
    for pair in pairs:
        slices.setdefault(pair.slice, []).append(pair)
    return [_gain(name, slices[name], confidence) for name in sorted(slices)]


def _gain(name: str, pairs: Sequence[Pair], confidence: float) -> Span:
    base, adapter = [p.base_score for p in pairs], [p.adapter_score for p in pairs]
    drop = _interval(base, adapter, confidence)
    signed = (0.0 - value for value in (drop.point, drop.upper, drop.lower))  # 0.0, never -0.0
    return Span(f"{name} ({drop.items})", *signed)


def _interval(first: Sequence[float], second: Sequence[float], confidence: float) -> Interval:
    return difference_interval(
        *(first, second), confidence=confidence, resamples=RESAMPLES, seed=SEED
    )


def loss_marks(losses: Points, chosen: int | None) -> list[Mark]:
    """The step of the adapter, the lowest eval loss where that is another step, and the first
    evaluation after the lowest that is RISE above it."""
    if not losses:
        return [] if chosen is None else [Mark(chosen, ADAPTER)]
    best, lowest = min(losses, key=lambda point: (point[1], point[0]))
    marks = [] if chosen in (None, best) else [Mark(chosen, ADAPTER)]
    marks += [Mark(best, f"{ADAPTER}, {BEST}" if chosen == best else BEST)]
    risen = [step for step, loss in losses if step > best and loss > lowest * (1 + RISE)]
    return [*marks, *([Mark(risen[0], "overfitting")] if risen else [])]
