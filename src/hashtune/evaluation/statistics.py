"""Paired statistics: how sure is a difference between two models on the same items?

Base and adapter answer the same items, so only the differences per item count; what makes an item
hard for both cancels out. Bounds are one-sided, since the gate asks one-sided questions ("is the
gain at least this?"). 10,000 resamples of 220 items take about 10 ms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK_DRAWS = 5_000_000  # resamples are drawn in chunks of about this many counts (40 MB)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `items` items with its one-sided lower and upper confidence bound."""

    point: float
    lower: float
    upper: float
    items: int


def bootstrap_mean(
    values: Sequence[float], *, confidence: float, resamples: int, seed: int
) -> Interval:
    """Percentile bootstrap of the mean, resampling whole items.

    A resample is drawn as counts of the distinct values (multinomial), which has the same
    distribution as drawing items with replacement and costs less.

    Args:
        values: one number per item.
        confidence: of each one-sided bound: 0.95 gives the 5th and the 95th percentile.
        resamples: number of resamples.
        seed: of the generator; the same seed gives the same bounds.

    Raises:
        ValueError: no values, or a confidence outside (0.5, 1).
    """
    if not len(values):
        raise ValueError("a mean needs at least one item")
    if not 0.5 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0.5, 1)")
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    means = _resampled_means(distinct, counts, resamples=resamples, seed=seed)
    lower, upper = np.quantile(means, [1.0 - confidence, confidence])
    return Interval(math.fsum(values) / len(values), float(lower), float(upper), len(values))


def bootstrap_difference(
    new: Sequence[float], old: Sequence[float], *, confidence: float, resamples: int, seed: int
) -> Interval:
    """Paired bootstrap of mean(new - old), the items resampled in pairs.

    Raises:
        ValueError: unequal lengths, and as `bootstrap_mean`.
    """
    differences = [a - b for a, b in zip(new, old, strict=True)]
    return bootstrap_mean(differences, confidence=confidence, resamples=resamples, seed=seed)


def mcnemar_p(*, lost: int, won: int) -> float:
    """Exact one-sided McNemar test: how likely are at least `lost` losses among the changed items
    if a changed item were as likely won as lost?

    Args:
        lost: items that the base got right and the adapter wrong.
        won: items that the base got wrong and the adapter right.
    """
    changed = lost + won
    tail = sum(math.comb(changed, count) for count in range(lost, changed + 1))
    return float(tail / 2**changed)


def _resampled_means(
    distinct: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    *,
    resamples: int,
    seed: int,
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Means of `resamples` resamples, shape [resamples]."""
    generator = np.random.default_rng(seed)
    items = int(counts.sum())
    chunk = max(1, CHUNK_DRAWS // len(distinct))
    parts = []
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        parts.append(generator.multinomial(items, counts / items, size=size) @ distinct / items)
    return np.concatenate(parts)
