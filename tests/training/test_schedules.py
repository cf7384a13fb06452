"""Learning rates worked by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.spec.schema import Schedule
from hashtune.training.schedules import lr_at, warmup_updates


def schedule(name: Any, *, warmup: float = 0.0, floor: float = 0.0) -> Schedule:
    return Schedule(name=name, warmup_fraction=warmup, min_lr_ratio=floor)


def curve(settings: Schedule, *, peak: float, total: int) -> list[float]:
    return [lr_at(update, peak=peak, total=total, schedule=settings) for update in range(total)]


@pytest.mark.parametrize(
    ("fraction", "total", "expected"),
    [(0.0, 10, 0), (0.05, 10, 1), (0.04, 10, 0), (0.25, 10, 3), (0.5, 4, 2), (1.0, 7, 7)],
)
def test_warmup_updates_round_half_up(fraction: float, total: int, expected: int) -> None:
    assert warmup_updates(schedule("constant", warmup=fraction), total=total) == expected


def test_cosine_with_warmup_and_floor() -> None:
    # 2 of 7 warm up: 4, 8. Then t = 0, 1/4, 1/2, 3/4, 1 of the way from 8 down to 0.25 * 8 = 2:
    # 2 + 6 * (1 + cos(pi t)) / 2, cos(pi / 4) = 0.70710678
    expected = [4.0, 8.0, 8.0, 7.12132034, 5.0, 2.87867966, 2.0]
    settings = schedule("cosine", warmup=2 / 7, floor=0.25)
    assert curve(settings, peak=8.0, total=7) == pytest.approx(expected, abs=1e-8)


def test_linear_with_warmup_and_floor() -> None:
    settings = schedule("linear", warmup=2 / 7, floor=0.25)
    assert curve(settings, peak=8.0, total=7) == pytest.approx([4, 8, 8, 6.5, 5, 3.5, 2])


def test_constant_after_warmup() -> None:
    settings = schedule("constant", warmup=0.5, floor=0.1)
    assert curve(settings, peak=2.0, total=4) == [1.0, 2.0, 2.0, 2.0]


def test_no_warmup_starts_at_the_peak_and_ends_at_zero() -> None:
    assert curve(schedule("cosine"), peak=1.0, total=3) == pytest.approx([1.0, 0.5, 0.0])
    assert curve(schedule("linear"), peak=1.0, total=3) == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
def test_edges_one_update_and_warmup_only(name: str) -> None:
    assert curve(schedule(name), peak=3.0, total=1) == [3.0]
    assert curve(schedule(name, warmup=1.0), peak=4.0, total=4) == [1.0, 2.0, 3.0, 4.0]
    assert curve(schedule(name, warmup=0.75), peak=3.0, total=4) == [1.0, 2.0, 3.0, 3.0]


@given(
    name=st.sampled_from(["cosine", "linear", "constant"]),
    warmup=st.floats(0, 1),
    floor=st.floats(0, 1),
    total=st.integers(1, 60),
)
def test_between_zero_and_peak_and_falling_after_warmup(
    name: str, warmup: float, floor: float, total: int
) -> None:
    settings = schedule(name, warmup=warmup, floor=floor)
    rates = curve(settings, peak=1.0, total=total)
    start = warmup_updates(settings, total=total)
    assert all(0.0 <= rate <= 1.0 + 1e-12 for rate in rates)
    assert rates[:start] == sorted(rates[:start])
    assert all(a >= b - 1e-12 for a, b in zip(rates[start:], rates[start + 1 :], strict=False))
