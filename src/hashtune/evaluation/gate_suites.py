"""The gate's rules of the suites: the drop over all items, and a veto of each slice.

The drop must be shown to lie within its margin (upper bound), or fails where it exceeds it and is
surely a drop. A slice is small, so it need not prove itself: it fails where its drop is larger than
allowed and an exact test says that it is no accident, with Holm's correction for having asked once
per slice. A slice in which no loss could show is named and never counts as passed.
"""

from dataclasses import dataclass, replace
from statistics import fmean

from hashtune.evaluation.evidence import Rows
from hashtune.evaluation.power import detectable_drop, items_needed
from hashtune.evaluation.statistics import difference_interval, holm, mcnemar_p
from hashtune.evaluation.verdicts import (
    CANNOT,
    FAIL,
    PASS,
    ROUNDING,
    UNSURE,
    Rule,
    Word,
    asks_for,
    enough,
    interval_of,
    no_difference,
    within_noise,
)
from hashtune.spec.schema import EvalGate

NEAR_CHANCE = 0.15  # a base score this little above chance leaves no room to lose


@dataclass(frozen=True, slots=True)
class Pairs:
    """Scores of base and adapter on the same items, and the score that guessing gives there."""

    old: list[float]
    new: list[float]
    chance: float

    @property
    def items(self) -> int:
        """Number of paired items."""
        return len(self.old)

    @property
    def drops(self) -> list[float]:
        """Base minus adapter, per item."""
        return [old - new for old, new in zip(self.old, self.new, strict=True)]

    @property
    def changed(self) -> tuple[int, int]:
        """(items lost, items won)."""
        drops = self.drops
        return sum(drop > 0 for drop in drops), sum(drop < 0 for drop in drops)

    @property
    def near_chance(self) -> bool:
        """Whether the base is too near chance for a loss to be seen (cannot detect a loss)."""
        return fmean(self.old) <= self.chance + NEAR_CHANCE + ROUNDING


def suite_rules(base: Rows, adapter: Rows, gate: EvalGate, *, noise: float) -> list[Rule]:
    """Enough items that can show a loss, the drop over all items, and one rule per slice.
    `noise`: how far a drop moves with the batch plan."""
    slices = {name: _pairs(base, adapter, name) for name in sorted({row["slice"] for row in base})}
    telling = sum(pairs.items for pairs in slices.values() if not pairs.near_chance)
    what = "were measured in slices that can show a loss"
    return [
        enough("regression.items", items=telling, least=gate.min_regression_items, what=what),
        _drop(_pairs(base, adapter), gate, noise),
        *_vetoes(slices, gate, noise),
    ]


def _pairs(base: Rows, adapter: Rows, name: str | None = None) -> Pairs:
    """The pairs of a slice, or of all of them."""
    both = [
        (old, new)
        for old, new in zip(base, adapter, strict=True)
        if name is None or old["slice"] == name
    ]
    return Pairs(
        old=[float(old["score"]) for old, _ in both],
        new=[float(new["score"]) for _, new in both],
        chance=fmean(old["chance"] for old, _ in both) if both else 0.0,
    )


def _drop(pairs: Pairs, gate: EvalGate, noise: float) -> Rule:
    name, margin = "regression.drop", gate.regression_max_drop
    if not pairs.items:
        meaning = "No suite was measured, so nothing is known about what got worse."
        return Rule(name, None, margin, None, 0, UNSURE, meaning)
    drop = interval_of(difference_interval, pairs.old, pairs.new, gate=gate)
    within, needed = drop.point <= margin + ROUNDING, None
    verdict: Word = UNSURE
    lost = not within and drop.lower > ROUNDING and not within_noise(drop.point, noise)
    if lost and _surely_lost(pairs, gate):
        verdict, why = FAIL, f"which exceeds the allowed {margin:.4g} and is surely a drop"
    elif noise > margin + ROUNDING:  # a loss beyond the margin could hide in it
        why = f"but other batch plans move it by {noise:.4g}, more than the allowed {margin:.4g}"
    elif drop.upper <= margin + ROUNDING:
        verdict, why = PASS, f"which is surely within the allowed {margin:.4g}"
    else:
        distance = margin - drop.point if within else drop.point
        needed = items_needed(pairs.drops, distance=distance, confidence=gate.confidence)
        why = f"held against the allowed {margin:.4g}: {asks_for(needed)}"
    meaning = (
        f"The suites' mean score drops by {drop.point:.4g} (between {drop.lower:.4g} and"
        f" {drop.upper:.4g} over {drop.items} items), {why}."
    )
    bound = drop.lower if verdict == FAIL else drop.upper
    rule = Rule(name, drop.point, margin, bound, drop.items, verdict, meaning)
    return replace(
        rule,
        interval=(drop.lower, drop.upper),
        items_needed=needed,
        detectable=_detectable(pairs, margin, gate.confidence, gate),
    )


def _surely_lost(pairs: Pairs, gate: EvalGate) -> bool:
    """Of right and wrong answers the exact test has the say, of other scores the lower bound."""
    if not {-1.0, 0.0, 1.0}.issuperset(pairs.drops):
        return True
    lost, won = pairs.changed
    return mcnemar_p(lost=lost, won=won) < 1 - gate.confidence


def _vetoes(slices: dict[str, Pairs], gate: EvalGate, noise: float) -> list[Rule]:
    changed = [pairs.changed for pairs in slices.values()]
    adjusted = holm([mcnemar_p(lost=lost, won=won) for lost, won in changed])
    return [
        _veto(name, pairs, chance, len(slices), gate, noise=noise)
        for (name, pairs), chance in zip(slices.items(), adjusted, strict=True)
    ]


def _veto(
    name: str, pairs: Pairs, chance: float, slices: int, gate: EvalGate, *, noise: float
) -> Rule:
    """`chance` is the p-value after Holm's correction over so many slices."""
    margin, alpha = gate.slice_max_drop, 1 - gate.confidence
    drop = interval_of(difference_interval, pairs.old, pairs.new, gate=gate)
    level = 1 - alpha / slices  # what the first slice of Holm's order must reach
    noisy = within_noise(drop.point, noise)
    larger, needed = drop.point > margin + ROUNDING and not noisy, None
    detectable = _detectable(pairs, margin, level, gate)
    blind = _blindness(pairs, slices, gate)
    verdict: Word = PASS
    if larger and chance < alpha:
        verdict, why = FAIL, f"more than the allowed {margin:.4g} and no accident"
    elif blind and (pairs.near_chance or not larger):
        verdict, why = CANNOT, f"but a loss cannot show here: {blind}"
    elif larger:
        needed = items_needed(pairs.drops, distance=drop.point, confidence=level)
        verdict = UNSURE
        why = f"more than the allowed {margin:.4g}, but within chance: {asks_for(needed)}"
    elif noisy and drop.point > margin + ROUNDING:
        verdict, why = UNSURE, no_difference(noise)
    else:
        why = f"within the allowed {margin:.4g}"
        if detectable is not None:
            why += f"; a true drop of {detectable:.4g} would fail in four runs of five"
    lost, won = pairs.changed
    meaning = (
        f"Slice {name} drops by {drop.point:.4g} ({lost} items lost, {won} won of {drop.items},"
        f" p = {chance:.3g}), {why}."
    )
    rule = Rule(
        f"regression.slice.{name}", drop.point, margin, chance, drop.items, verdict, meaning
    )
    return replace(
        rule,
        interval=(drop.lower, drop.upper),
        items_needed=needed,
        detectable=None if blind else detectable,
    )


def _blindness(pairs: Pairs, slices: int, gate: EvalGate) -> str:
    """Why no loss could fail this slice, or nothing."""
    score = fmean(pairs.old)
    if pairs.near_chance:
        return (
            f"the base scores {score:.4g}, within {NEAR_CHANCE:g} of the {pairs.chance:.4g} that"
            " guessing gives"
        )
    if score <= gate.slice_max_drop + ROUNDING:
        return f"the base scores {score:.4g}, which is no more than the drop that is allowed"
    right = sum(old > 0 for old in pairs.old)
    if mcnemar_p(lost=right, won=0) * slices >= 1 - gate.confidence:
        return f"losing all {right} items that the base has right would still be within chance"
    return ""


def _detectable(pairs: Pairs, margin: float, confidence: float, gate: EvalGate) -> float | None:
    """With the planned share of changed items, or the observed one where that is larger."""
    share = max(gate.discordant_share, sum(pairs.changed) / pairs.items)
    return detectable_drop(
        pairs.items, margin=margin, discordant_share=share, confidence=confidence
    )
