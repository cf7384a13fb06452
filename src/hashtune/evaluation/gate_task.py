"""The gate's rules of the task: answers that end, the score itself, its gain over two rivals.

The score must reach its minimum with its lower bound. A gain must reach its minimum and be beyond
doubt a gain: its lower bound above 0. Both fail when even the upper bound misses the minimum.
"""

from collections.abc import Iterator, Mapping, Sequence

from hashtune.evaluation.evidence import Rows
from hashtune.evaluation.power import items_needed
from hashtune.evaluation.statistics import Interval, difference_interval, mean_interval
from hashtune.evaluation.verdicts import (
    FAIL,
    PASS,
    ROUNDING,
    UNSURE,
    Rule,
    Word,
    asks_for,
    interval_of,
    no_difference,
    within_noise,
)
from hashtune.spec.schema import EvalGate


def finished(adapter: Rows, gate: EvalGate) -> Rule:
    """Answers that never end come from a stop that was trained and is not the one that is used, or
    from one that was not trained."""
    name, items, threshold = "task.unfinished", len(adapter), gate.unfinished_max_share
    share = sum(not row["finished"] for row in adapter) / items
    verdict: Word = PASS if share <= threshold + ROUNDING else FAIL
    why = "which is within" if verdict == PASS else "which exceeds"
    if items < gate.min_task_items:
        verdict, why = UNSURE, "measured on too few items to be held against"
    meaning = (
        f"{share:.4g} of the adapter's answers reach the length limit without an end of turn, "
        f"{why} the allowed {threshold:.4g}."
    )
    needed = gate.min_task_items if verdict == UNSURE else None
    return Rule(name, share, threshold, None, items, verdict, meaning, items_needed=needed)


def task_rules(
    base: Rows, adapter: Rows, gate: EvalGate, *, noise: Mapping[str, float]
) -> Iterator[Rule]:
    """Three rules per field: the score, its gain over the base, and its gain over always giving
    the most frequent answer. `noise`: how far each of the two gains moves with the batch plan."""
    for field in sorted(adapter[0]["scores"]):
        scores = [row["scores"][field] for row in adapter]
        yield _score(f"task.{field}.score", f"{field}: score", scores, gate)
        rivals = (
            ("base", "the base", [row["scores"][field] for row in base]),
            (
                "majority",
                "always giving the most frequent answer",
                [row["majority"][field] for row in adapter],
            ),
        )
        for suffix, whom, rival in rivals:
            name, what = f"task.{field}.gain_over_{suffix}", f"{field}: gain over {whom}"
            yield _gain(name, what, scores, rival, gate, noise=noise[suffix])


def _score(name: str, what: str, scores: Sequence[float], gate: EvalGate) -> Rule:
    """Passes when even the lower bound reaches the minimum."""
    measured, least = interval_of(mean_interval, scores, gate=gate), gate.task_min
    if measured.lower >= least - ROUNDING:
        return _told(name, what, measured, least, PASS)
    if measured.upper < least - ROUNDING:
        return _told(name, what, measured, least, FAIL)
    distance = measured.point - least
    needed = items_needed(scores, distance=distance, confidence=gate.confidence)
    return _told(name, what, measured, least, UNSURE, needed=needed)


def _gain(
    name: str,
    what: str,
    scores: Sequence[float],
    rival: Sequence[float],
    gate: EvalGate,
    *,
    noise: float,
) -> Rule:
    """Passes when the gain reaches the minimum and is surely one. A minimum below 0 allows a loss;
    the lower bound must reach it then."""
    measured = interval_of(difference_interval, scores, rival, gate=gate)
    least = gate.task_metric_min_gain
    reached = measured.point >= least - ROUNDING
    sure = measured.lower > ROUNDING if least >= 0 else measured.lower >= least - ROUNDING
    counts = least < 0 or not within_noise(measured.point, noise)
    if reached and sure and counts:
        return _told(name, what, measured, least, PASS)
    if measured.upper < least - ROUNDING:
        return _told(name, what, measured, least, FAIL)
    if reached and sure:
        return _told(name, what, measured, least, UNSURE, noise=noise)
    differences = [new - old for new, old in zip(scores, rival, strict=True)]
    distance = measured.point - (min(0.0, least) if reached else least)
    needed = items_needed(differences, distance=distance, confidence=gate.confidence)
    return _told(name, what, measured, least, UNSURE, needed=needed)


def _told(
    name: str,
    what: str,
    measured: Interval,
    least: float,
    verdict: Word,
    *,
    needed: int | None = None,
    noise: float | None = None,
) -> Rule:
    if verdict == PASS:
        why = f"which surely reaches the required {least:.4g}"
        if measured.lower < least - ROUNDING:
            why = f"which reaches the required {least:.4g} and is surely above 0"
    elif noise is not None:
        why = no_difference(noise)
    elif verdict == FAIL:
        why = f"which surely misses the required {least:.4g}"
    else:
        why = f"held against {least:.4g}: {asks_for(needed)}"
    meaning = (
        f"{what} is {measured.point:.4g} (between {measured.lower:.4g} and {measured.upper:.4g}"
        f" over {measured.items} items), {why}."
    )
    bound = measured.upper if verdict == FAIL else measured.lower
    interval = (measured.lower, measured.upper)
    return Rule(
        name, measured.point, least, bound, measured.items, verdict, meaning, interval, needed
    )
