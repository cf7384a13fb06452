"""How many items decide, and how large a loss do these items show?

Planning figures, by the normal approximation; no verdict depends on them. POWER is how often a
suite of that size, or a loss of that size, is meant to give a clear answer.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

POWER = 0.8
MOST_ITEMS = 1_000_000  # more than this is no advice: the estimate lies at the margin itself
HALVINGS = 40


def items_needed(differences: Sequence[float], *, distance: float, confidence: float) -> int | None:
    """Items after which a difference that goes on as these do is told from the margin.

    n = ((z_confidence + z_power) * s / distance)^2, rounded up: the sample size of a one-sided
    test of a mean (Chow, Shao and Wang, Sample Size Calculations in Clinical Research, 2nd edition,
    2008, section 3.1). s^2 takes in one more item with the largest change seen (1 if there is
    none), so that a few items without a change do not promise that none will come.

    Args:
        differences: one per item; at least one.
        distance: of their mean from the value that it is to be told from; its sign is nothing.
        confidence: of the one-sided bound that decides.

    Returns:
        More than there are, since these left it open. None where the distance is 0 or asks for
        more than MOST_ITEMS.
    """
    items = len(differences)
    largest = max(abs(value) for value in differences) or 1.0
    mean = math.fsum(differences) / items
    squares = math.fsum(value * value for value in differences) + largest * largest
    variance = max(0.0, squares / (items + 1) - mean * mean)
    if distance == 0.0:
        return None
    quantiles = NormalDist().inv_cdf(confidence) + NormalDist().inv_cdf(POWER)
    needed = variance * (quantiles / distance) ** 2
    return max(items + 1, math.ceil(needed)) if needed <= MOST_ITEMS else None


@lru_cache(maxsize=1024)  # simulations ask for the same few sizes again and again
def detectable_drop(
    items: int, *, margin: float, discordant_share: float, confidence: float
) -> float | None:
    """The smallest true drop that fails with probability POWER: it must exceed the margin and be
    told from 0.

    The estimate must reach max(margin, z_confidence * sqrt(share / items)) plus one item, which
    the exact test asks for (its continuity correction); the true drop lies z_power standard errors
    above that, each sqrt((share - drop^2) / items). Source: Connor, Biometrics 43 (1987), 207-211.

    Args:
        items: at least one.
        margin: drop that is allowed.
        discordant_share: of items that the two score differently; never less than the drop itself.
        confidence: 1 minus the level of the test.

    Returns:
        None where no drop up to 1 is enough.
    """
    doubt, power = NormalDist().inv_cdf(confidence), NormalDist().inv_cdf(POWER)

    def falls_short(drop: float) -> bool:
        share = max(discordant_share, drop)
        least = max(margin, doubt * math.sqrt(share / items)) + 1 / items
        error = math.sqrt(max(0.0, share - drop * drop) / items)
        return drop < least + power * error

    if falls_short(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falls_short(middle) else (low, middle)
    return high
