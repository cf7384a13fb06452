"""What one rule of the gate says, and what it takes to say it: words, figures, one sentence.

Every rule knows three answers. PASS and FAIL need the confidence bound of `eval_gate.confidence`;
what lies between is UNSURE, which does not ship. CANNOT is the fourth word, for a slice that no
loss could show in: it is told and decides nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hashtune.evaluation.statistics import Interval
from hashtune.spec.schema import EvalGate

Word = Literal["pass", "fail", "not enough evidence", "cannot detect a loss"]
PASS: Final = "pass"
FAIL: Final = "fail"
UNSURE: Final = "not enough evidence"
CANNOT: Final = "cannot detect a loss"
RESAMPLES, SEED = 10_000, 0  # part of what the statistic is, not a setting
ROUNDING = 1e-9  # a mean of scores may miss its margin by float rounding


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule's outcome; `meaning` says it in a sentence.

    bound: the one-sided confidence bound that stands against `value`; of a slice its p-value after
        Holm's correction; None where there is none.
    interval: the lower and the upper one-sided bound of `value`.
    items_needed: about how many items would decide what these leave open; None where the rule is
        decided, or where no practical number decides.
    detectable: the smallest true drop that fails in four runs of five; rules of a drop only.
    """

    name: str
    value: float | None
    threshold: float
    bound: float | None
    items: int
    verdict: Word
    meaning: str
    interval: tuple[float, float] | None = None
    items_needed: int | None = None
    detectable: float | None = None


def interval_of(
    measure: Callable[..., Interval], *values: Sequence[float], gate: EvalGate
) -> Interval:
    """An interval of statistics.py at the gate's confidence, with the fixed resamples and seed."""
    return measure(*values, confidence=gate.confidence, resamples=RESAMPLES, seed=SEED)


def enough(name: str, *, items: int, least: int, what: str = "were measured") -> Rule:
    """Passes when there are at least `least` items; no figure of fewer is trusted."""
    verdict: Word = PASS if items >= least else UNSURE
    than = "enough" if verdict == PASS else "too few"
    meaning = f"{items} items {what}, {than}: at least {least} are needed."
    needed = None if verdict == PASS else least
    return Rule(name, float(items), float(least), None, items, verdict, meaning, None, needed)


def asks_for(needed: int | None) -> str:
    """The words about the items that would decide."""
    if needed is None:
        return "the estimate lies so near the margin that no practical number of items decides"
    return f"about {needed} items like these would decide"


def within_noise(difference: float, noise: float) -> bool:
    """Whether other batch plans alone could make this difference; never where none was seen."""
    return noise > 0 and abs(difference) <= noise + ROUNDING


def no_difference(noise: float) -> str:
    """The words about a difference within the noise floor."""
    return f"which is no difference: within the {noise:.4g} that other batch plans make"
