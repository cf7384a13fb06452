"""The gate: may this adapter ship? Evidence and margins in, one verdict per rule out.

A rule passes, fails, or has not enough evidence. Gains must be there with confidence (the lower
bound reaches the margin); a regression fails on its point estimate, since a drop is not excused by
noise; a slice has a veto only when its loss is statistically clear, because slices are small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hashtune.evaluation.evidence import Evidence, Rows, check_evidence
from hashtune.evaluation.statistics import Interval, bootstrap_difference, mcnemar_p
from hashtune.spec.schema import EvalGate

Word = Literal["pass", "fail", "not enough evidence"]
PASS: Final = "pass"
FAIL: Final = "fail"
UNSURE: Final = "not enough evidence"
RESAMPLES, SEED = 10_000, 0  # part of what the statistic is, not a setting
ROUNDING = 1e-9  # a mean of scores may miss its margin by float rounding


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule's outcome. `bound` is the one-sided confidence bound that stands against `value`
    (for a slice: the p-value), None where there is none; `meaning` says it in a sentence."""

    name: str
    value: float | None
    threshold: float
    bound: float | None
    items: int
    verdict: Word
    meaning: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict over all rules: fail if one fails, else not enough evidence if one lacks it."""

    verdict: Word
    rules: list[Rule]
    summary: str


def decide(evidence: Evidence, gate: EvalGate) -> Verdict:
    """Judge an adapter by the margins of `gate`.

    Raises:
        InputError: evidence that proves nothing (see evidence.check_evidence).
    """
    check_evidence(evidence)
    base, adapter = evidence.base, evidence.adapter
    rules = [
        _enough("task.items", items=len(adapter.task), least=gate.min_task_items),
        _finished(adapter.task, gate),
        *_task_rules(base.task, adapter.task, gate),
        _enough("regression.items", items=len(adapter.suites), least=gate.min_regression_items),
        _regression(base.suites, adapter.suites, gate),
        *_slice_rules(base.suites, adapter.suites, gate),
    ]
    failed = [rule.name for rule in rules if rule.verdict == FAIL]
    unsure = [rule.name for rule in rules if rule.verdict == UNSURE]
    if failed:
        return Verdict(FAIL, rules, f"fails {len(failed)} of {len(rules)}: {', '.join(failed)}")
    if unsure:
        return Verdict(UNSURE, rules, f"not enough evidence for {', '.join(unsure)}")
    return Verdict(PASS, rules, f"passes all {len(rules)} rules")


def _enough(name: str, *, items: int, least: int) -> Rule:
    verdict: Word = PASS if items >= least else UNSURE
    than = "enough" if verdict == PASS else "too few"
    meaning = f"{items} items were measured, {than}: at least {least} are needed."
    return Rule(name, float(items), float(least), None, items, verdict, meaning)


def _finished(adapter: Rows, gate: EvalGate) -> Rule:
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
    return Rule(name, share, threshold, None, items, verdict, meaning)


def _task_rules(base: Rows, adapter: Rows, gate: EvalGate) -> list[Rule]:
    """Three rules per field: the score itself, and its gain over the base and over always giving
    the most frequent answer."""
    rules = []
    for field in sorted(adapter[0]["scores"]):
        scores = [row["scores"][field] for row in adapter]
        rivals = (
            ("score", "score", [0.0] * len(scores), gate.task_min),
            (
                "gain_over_base",
                "gain over the base",
                [row["scores"][field] for row in base],
                gate.task_metric_min_gain,
            ),
            (
                "gain_over_majority",
                "gain over always giving the most frequent answer",
                [row["majority"][field] for row in adapter],
                gate.task_metric_min_gain,
            ),
        )
        for suffix, what, old, threshold in rivals:
            interval = _interval(scores, old, gate)
            rules.append(
                _at_least(f"task.{field}.{suffix}", f"{field}: {what}", interval, threshold)
            )
    return rules


def _at_least(name: str, what: str, interval: Interval, threshold: float) -> Rule:
    """Pass when even the lower bound reaches the threshold, fail when the estimate misses it."""
    verdict: Word
    if interval.point < threshold - ROUNDING:
        verdict, why = FAIL, "which misses"
    elif interval.lower >= threshold - ROUNDING:
        verdict, why = PASS, "which surely reaches"
    else:
        verdict, why = UNSURE, "so more items are needed to be sure that it reaches"
    meaning = (
        f"{what} is {interval.point:.4g} (lower bound {interval.lower:.4g} over {interval.items}"
        f" items), {why} the required {threshold:.4g}."
    )
    return Rule(name, interval.point, threshold, interval.lower, interval.items, verdict, meaning)


def _regression(base: Rows, adapter: Rows, gate: EvalGate) -> Rule:
    """Drop of the mean over all suite items; the estimate decides, given enough items."""
    name, threshold = "regression.drop", gate.regression_max_drop
    if not adapter:
        meaning = "No suite was measured, so nothing is known about what got worse."
        return Rule(name, None, threshold, None, 0, UNSURE, meaning)
    drop = _interval(_scores(base), _scores(adapter), gate)
    verdict: Word = PASS if drop.point <= threshold + ROUNDING else FAIL
    why = "which is within" if verdict == PASS else "which exceeds"
    if drop.items < gate.min_regression_items:
        verdict, why = UNSURE, "measured on too few items to be held against"
    meaning = (
        f"The suites' mean score drops by {drop.point:.4g} (between {drop.lower:.4g} and"
        f" {drop.upper:.4g} over {drop.items} items), {why} the allowed {threshold:.4g}."
    )
    return Rule(name, drop.point, threshold, drop.upper, drop.items, verdict, meaning)


def _slice_rules(base: Rows, adapter: Rows, gate: EvalGate) -> list[Rule]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for old, new in zip(base, adapter, strict=True):
        pairs.setdefault(old["slice"], []).append((old["score"], new["score"]))
    return [_slice(name, pairs[name], gate) for name in sorted(pairs)]


def _slice(name: str, pairs: Sequence[tuple[float, float]], gate: EvalGate) -> Rule:
    """Veto: the drop is larger than allowed and an exact test says that it is no accident."""
    lost = sum(new < old for old, new in pairs)
    won = sum(new > old for old, new in pairs)
    drop = sum(old - new for old, new in pairs) / len(pairs)
    chance = mcnemar_p(lost=lost, won=won)
    threshold, alpha = gate.slice_max_drop, 1 - gate.confidence
    larger = drop > threshold + ROUNDING
    verdict: Word = FAIL if larger and chance < alpha else PASS
    if verdict == FAIL:
        why = f"more than the allowed {threshold:.4g} and no accident"
    elif larger:
        why = f"more than the allowed {threshold:.4g}, but within chance"
    else:
        why = f"within the allowed {threshold:.4g}"
    meaning = (
        f"Slice {name} drops by {drop:.4g} ({lost} items lost, {won} won of {len(pairs)},"
        f" p = {chance:.3g}), {why}."
    )
    if 0.5 ** len(pairs) >= alpha:
        meaning += " It is too small for a veto ever to be sure."
    return Rule(f"regression.slice.{name}", drop, threshold, chance, len(pairs), verdict, meaning)


def _interval(new: Sequence[float], old: Sequence[float], gate: EvalGate) -> Interval:
    return bootstrap_difference(
        new, old, confidence=gate.confidence, resamples=RESAMPLES, seed=SEED
    )


def _scores(rows: Rows) -> list[float]:
    return [row["score"] for row in rows]
