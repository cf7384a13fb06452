"""The statistics of the gate beside scipy and statsmodels, on seeded tables; optional metrics.

    PYTHONPATH=src python bench/statistics_peers.py
    # in an environment with scipy, statsmodels, rouge-score and sacrebleu

Wilson's bounds, McNemar's exact p-value and Holm's correction are theirs to 1e-9. Neither has
Tango's bounds: the likeliest shares under a supposed difference are found by scipy's minimizer and
the bound by its root finder, from the definition instead of our formula. The bootstrap draws other
resamples than scipy's, so its bounds agree within a quarter of the standard error. ROUGE-L, BLEU
and chrF are asked for cases that can be computed by hand.
"""

import math
import sys

import numpy as np
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from hashtune.evaluation.metrics.packages import package_metric
from hashtune.evaluation.proportions import tango_bounds, wilson_bounds
from hashtune.evaluation.statistics import bootstrap_difference, holm, mcnemar_p

CONFIDENCE = 0.95
BLEU = (5 / 8, 4 / 7, 3 / 6, 2 / 5)  # n-grams of five words in a row among eight
TABLES = ((3, 3, 60), (6, 4, 84), (15, 15, 300), (21, 4, 300), (0, 0, 40), (5, 0, 12), (1, 9, 21))


def wilson(right: int, items: int) -> float:
    """Largest distance from statsmodels' two-sided interval at 0.9."""
    peer = proportion_confint(right, items, alpha=2 * (1 - CONFIDENCE), method="wilson")
    ours = wilson_bounds(right, items, confidence=CONFIDENCE)
    return max(abs(a - b) for a, b in zip(ours, peer, strict=True))


def exact(lost: int, won: int) -> float:
    """Distance of the one-sided p-value from scipy's, and of both sides from statsmodels'."""
    ours = mcnemar_p(lost=lost, won=won)
    if not lost + won:
        return abs(ours - 1.0)
    peer = stats.binomtest(lost, lost + won, 0.5, alternative="greater").pvalue
    smaller = min(ours, mcnemar_p(lost=won, won=lost))
    both = mcnemar([[0, lost], [won, 0]], exact=True).pvalue
    return max(abs(ours - peer), abs(min(1.0, 2 * smaller) - both))


def tango(more: int, less: int, items: int) -> float:
    """Largest distance of a bound from the one that scipy finds."""
    z = float(stats.norm.ppf(CONFIDENCE))

    def likelihood(share: float, difference: float) -> float:
        shares = (share + difference, share, 1 - 2 * share - difference)
        counts = (more, less, items - more - less)
        return -sum(c * math.log(max(s, 1e-300)) for c, s in zip(counts, shares, strict=True) if c)

    def score(difference: float) -> float:
        edges = (max(0.0, -difference), (1 - difference) / 2)
        share = optimize.minimize_scalar(
            likelihood, bounds=edges, args=(difference,), method="bounded", options={"xatol": 1e-12}
        ).x
        error = math.sqrt((2 * share + difference - difference**2) / items)
        return ((more - less) / items - difference) / error

    point = (more - less) / items
    edge = 1 - 1e-6
    upper = optimize.brentq(lambda d: score(d) + z, point, edge)
    lower = optimize.brentq(lambda d: score(d) - z, -edge, point)
    ours = tango_bounds(more, less, items, confidence=CONFIDENCE)
    return max(abs(ours[0] - lower), abs(ours[1] - upper))


def bootstrap(seed: int) -> float:
    """Largest distance of a bound from scipy's percentile bootstrap, in standard errors."""
    drawn = np.random.default_rng(seed).choice([0.0, 0.25, 0.5, 1.0], size=(2, 150))
    ours = bootstrap_difference(
        drawn[0].tolist(), drawn[1].tolist(), confidence=CONFIDENCE, resamples=10_000, seed=seed
    )
    peer = stats.bootstrap(
        (drawn[0] - drawn[1],),
        np.mean,
        confidence_level=2 * CONFIDENCE - 1,
        n_resamples=10_000,
        method="percentile",
        rng=np.random.default_rng(seed + 1),
    )
    bounds = peer.confidence_interval
    distance = max(abs(ours.lower - bounds.low), abs(ours.upper - bounds.high))
    return float(distance / peer.standard_error)


def holms(seed: int) -> float:
    """Largest distance of an adjusted p-value from statsmodels'."""
    drawn = np.random.default_rng(seed).uniform(0, 0.2, size=7)
    peer = multipletests(drawn, method="holm")[1]
    return float(max(abs(a - b) for a, b in zip(holm(drawn.tolist()), peer, strict=True)))


METRICS = (  # metric, answer, reference, score
    ("rouge_l", "the cat sat", "the cat", 0.8),  # 2 of 3 and 2 of 2 words
    ("rouge_l", "sat the cat", "the cat sat", 2 / 3),
    ("rouge_l", "", "cat", 0.0),
    ("bleu", "the cat sat on the mat", "the cat sat on the mat", 1.0),
    ("bleu", "dog", "", 0.0),
    ("bleu", "a b c d e f g h", "a b c d e x y z", math.exp(sum(map(math.log, BLEU)) / 4)),
    ("chrf", "abc", "abc", 1.0),
    ("chrf", "xyz", "abc", 0.0),
)


def metrics() -> float:
    """Largest distance of an optional metric from the score by hand."""
    return max(abs(package_metric(name)(answer, ref) - want) for name, answer, ref, want in METRICS)


def main() -> int:
    """Print the largest distance of each statistic; 1 when one is too large."""
    measured = {
        "Wilson's bounds": (max(wilson(k, n) for n in (12, 84, 200) for k in range(n + 1)), 1e-9),
        "McNemar's exact p": (max(exact(a, b) for a in range(40) for b in range(40)), 1e-9),
        "Tango's bounds": (max(tango(*table) for table in TABLES), 1e-5),
        "Holm's correction": (max(holms(seed) for seed in range(50)), 1e-12),
        "bootstrap, standard errors": (max(bootstrap(seed) for seed in range(20)), 0.25),
        "ROUGE-L, BLEU, chrF by hand": (metrics(), 1e-9),
    }
    for name, (distance, most) in measured.items():
        print(f"{name:<28} {distance:.2e} (at most {most:g})")
    return int(any(distance > most for distance, most in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
