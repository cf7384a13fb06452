"""Bounds and p-values against cases that can be computed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.evaluation.statistics import bootstrap_difference, bootstrap_mean, holm, mcnemar_p

SETTINGS = {"confidence": 0.95, "resamples": 10_000, "seed": 0}


def test_equal_values_leave_no_doubt():
    interval = bootstrap_mean([0.25] * 7, **SETTINGS)
    assert (interval.point, interval.lower, interval.upper, interval.items) == (0.25, 0.25, 0.25, 7)


def test_two_items_give_the_quarter_half_quarter_distribution():
    # resamples of [0, 1]: mean 0 with 1/4, 0.5 with 1/2, 1 with 1/4
    wide = bootstrap_mean([0.0, 1.0], confidence=0.8, resamples=10_000, seed=1)
    assert (wide.lower, wide.point, wide.upper) == (0.0, 0.5, 1.0)
    narrow = bootstrap_mean([0.0, 1.0], confidence=0.7, resamples=10_000, seed=1)
    assert (narrow.lower, narrow.upper) == (0.5, 0.5)


def test_bounds_of_a_share_are_those_of_the_binomial():
    # 80 of 100: means are Binomial(100, 0.8) / 100, whose 5% and 95% quantiles are 73 and 86
    interval = bootstrap_mean([1.0] * 80 + [0.0] * 20, **SETTINGS)
    assert interval.point == 0.8
    assert interval.lower == pytest.approx(0.73, abs=0.011)
    assert interval.upper == pytest.approx(0.86, abs=0.011)


def test_pairs_cancel_what_both_sides_share():
    old = [0.0, 1.0] * 50
    new = [value + 0.0 for value in old]
    assert bootstrap_difference(new, old, **SETTINGS).lower == 0.0
    shuffled = [1.0, 0.0] * 50  # the same means, other pairs: a wide interval
    assert bootstrap_difference(shuffled, old, **SETTINGS).lower < -0.1


def test_the_seed_decides_the_bounds():
    values = [0.1 * index for index in range(37)]
    again = [bootstrap_mean(values, confidence=0.95, resamples=100, seed=s) for s in (3, 3, 4)]
    assert again[0] == again[1] != again[2]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_point_lies_within_the_range_and_bounds_are_ordered(values):
    interval = bootstrap_mean(values, confidence=0.95, resamples=500, seed=0)
    assert min(values) - 1e-9 <= interval.lower <= interval.upper <= max(values) + 1e-9


def test_nothing_to_average_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_mean([], **SETTINGS)
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_mean([1.0], confidence=0.4, resamples=10, seed=0)
    with pytest.raises(ValueError, match="shorter"):
        bootstrap_difference([1.0, 0.0], [1.0], **SETTINGS)


@pytest.mark.parametrize(
    ("lost", "won", "expected"),
    [(0, 0, 1.0), (5, 0, 1 / 32), (4, 1, 6 / 32), (0, 5, 1.0), (3, 3, 42 / 64), (1, 2, 7 / 8)],
)
def test_mcnemar_by_hand(lost, won, expected):
    assert mcnemar_p(lost=lost, won=won) == expected


@pytest.mark.parametrize(
    ("lost", "won", "expected"),
    [(6, 4, 0.376953125), (21, 4, 0.0004552602767944336), (150, 120, 0.038694699490109244)],
)
def test_mcnemar_is_scipys_binomial_test(lost, won, expected):
    """scipy 1.17.1: binomtest(lost, lost + won, 0.5, alternative="greater").pvalue."""
    assert mcnemar_p(lost=lost, won=won) == pytest.approx(expected, rel=1e-12)


def test_holm_by_hand():
    """Sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04; the last may not
    fall below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
