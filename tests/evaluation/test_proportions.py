"""Score intervals against published and peers' values, and against the errors they promise."""

import math

import pytest

from hashtune.evaluation.proportions import tango_bounds, wilson_bounds
from hashtune.evaluation.statistics import bootstrap_difference, difference_interval, mean_interval

SETTINGS = {"confidence": 0.95, "resamples": 10_000, "seed": 0}


def test_tango_is_as_published():
    """21 children, 1 and 7 of them changed: -0.517 to -0.026 in two-sided 95 % (Fagerland, Lydersen
    and Laake 2014)."""
    lower, upper = tango_bounds(1, 7, 21, confidence=0.975)
    assert (round(lower, 3), round(upper, 3)) == (-0.517, -0.026)


@pytest.mark.parametrize(
    ("table", "bounds"),
    [
        ((3, 3, 60), (-0.07739613, 0.07739613)),
        ((15, 15, 300), (-0.03107546, 0.03107546)),
        ((5, 0, 12), (0.15602664, 0.64401899)),
        ((21, 4, 300), (0.03115774, 0.08657133)),
    ],
)
def test_tango_is_what_scipy_finds(table, bounds):
    """Made by bench/statistics_peers.py's way with scipy 1.17.1: likelihood and root by number."""
    assert tango_bounds(*table, confidence=0.95) == pytest.approx(bounds, abs=1e-8)


@pytest.mark.parametrize(
    ("right", "items", "bounds"),
    [
        (0, 12, (0.0, 0.18398119474747707)),
        (63, 84, (0.665312315009378, 0.8190857791244313)),
        (194, 200, (0.943044596205708, 0.9844090727788027)),
        (12, 12, (1 - 0.18398119474747707, 1.0)),
    ],
)
def test_wilson_is_that_of_statsmodels(right, items, bounds):
    """statsmodels 0.15.0: proportion_confint(right, items, alpha=0.1, method="wilson")."""
    assert wilson_bounds(right, items, confidence=0.95) == pytest.approx(bounds, abs=1e-12)


@pytest.mark.parametrize("items", [1, 20, 300])
def test_without_a_change_doubt_remains(items):
    """z^2 / (n + z^2): 0.73 after one item, 0.0089 after 300. A bootstrap would say 0."""
    z2 = 1.6448536269514722**2
    bound = z2 / (items + z2)
    lower, upper = tango_bounds(0, 0, items, confidence=0.95)
    assert (lower, upper) == pytest.approx((-bound, bound), abs=1e-9)
    ties = difference_interval([0.5] * items, [0.5] * items, **SETTINGS)
    assert (ties.point, ties.lower, ties.upper) == (0.0, lower, upper)


def test_everything_lost_ends_at_one():
    """All 30 lost, so at least a share p of Wilson's; the rest might have been won: 2p - 1."""
    lower, upper = tango_bounds(30, 0, 30, confidence=0.95)
    assert upper == 1.0
    assert lower == pytest.approx(2 * wilson_bounds(30, 30, confidence=0.95)[0] - 1)


def shares(lost, won, items, holds):
    """Probability that a table of `items` with these shares of lost and won items holds."""
    total = 0.0
    logs = [math.lgamma(n + 1) for n in range(items + 1)]
    for a in range(items + 1):
        for b in range(items + 1 - a):
            kept = items - a - b
            weight = a * math.log(lost) + b * math.log(won) + kept * math.log(1 - lost - won)
            if weight + logs[items] - logs[a] - logs[b] - logs[kept] > math.log(1e-9):
                weight = math.exp(weight + logs[items] - logs[a] - logs[b] - logs[kept])
                total += weight * holds(a, b)
    return total


@pytest.mark.parametrize(("lost", "won"), [(0.06, 0.01), (0.075, 0.025), (0.1, 0.05)])
def test_a_true_drop_of_the_margin_seldom_passes(lost, won):
    """Exact, no sampling: over 300 items the upper bound lies below a true drop of 0.05 in at most
    5 % of the tables; Wald's bound, and the bootstrap that it stands for here, in up to 7 %."""

    def tango(a, b):
        return tango_bounds(a, b, 300, confidence=0.95)[1] <= 0.05

    def wald(a, b):
        point = (a - b) / 300
        return point + 1.6449 * math.sqrt(((a + b) / 300 - point**2) / 300) <= 0.05

    assert shares(lost, won, 300, tango) <= 0.05
    assert shares(lost, won, 300, wald) > 0.05


def test_pairing_is_what_makes_the_bounds_narrow():
    """Planted: unpaired statistics. 200 of 300 right on both sides, 30 items changed: the paired
    bound is 0.031; of two independent shares it would be 0.063, twice the margin's resolution."""
    old = [1.0] * 200 + [0.0] * 100
    new = [0.0] * 15 + [1.0] * 185 + [1.0] * 15 + [0.0] * 85
    paired = difference_interval(old, new, **SETTINGS)
    unpaired = 1.6449 * math.sqrt(2 * (2 / 3) * (1 / 3) / 300)
    assert (paired.point, round(paired.upper, 3), round(unpaired, 3)) == (0.0, 0.031, 0.063)
    assert paired.upper < unpaired / 2


def test_scores_between_are_bootstrapped():
    new, old = [0.5, 1.0, 0.25] * 20, [0.5, 0.5, 0.5] * 20
    assert difference_interval(new, old, **SETTINGS) == bootstrap_difference(new, old, **SETTINGS)
    assert mean_interval([0.0, 1.0], **SETTINGS).upper == wilson_bounds(1, 2, confidence=0.95)[1]
    assert mean_interval([0.5, 1.0], **SETTINGS).upper == 1.0


def test_nothing_to_average_is_refused():
    for measure in (mean_interval, lambda *args, **kw: difference_interval(*args, [], **kw)):
        with pytest.raises(ValueError, match="at least one"):
            measure([], **SETTINGS)
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1.0], confidence=0.5, resamples=10, seed=0)
