"""Learning rates worked by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.spec.lengths import decay_start, length_findings, warmup_updates
from hashtune.spec.schema import Schedule
from hashtune.training.schedules import lr_at

DECAYS = ["linear", "cosine", "1-sqrt"]


def schedule(name: Any, *, warmup: float = 0.0, floor: float = 0.0, **changes: Any) -> Schedule:
    fields = {
        "name": name,
        "warmup_fraction": warmup,
        "warmup_steps": None,
        "min_lr_ratio": floor,
        "decay": None,
        "decay_fraction": None,
        "decay_start": None,
        "branch_from": None,
    }
    return Schedule(**{**fields, **changes})


def steps(name: Any, warmup: int, **changes: Any) -> Schedule:
    return schedule(name, warmup_fraction=None, warmup_steps=warmup, **changes)


def wsd(decay: str, *, warmup: int = 10, **changes: Any) -> Schedule:
    return steps("wsd", warmup, decay=decay, **({"decay_fraction": 0.2} | changes))


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


# The reference's curve has points t = 0 to 100 with peak 2e-4 and 10 steps of warm-up: here 101
# updates. In the warm-up an update takes the point after it, so that none is made at 0.
PEAK, TOTAL = 2e-4, 101


@pytest.mark.parametrize(
    ("update", "expected"),
    [(4, 1e-4), (9, 2e-4), (10, 2e-4), (55, 1e-4), (100, 0.0)],  # cos(pi * 45 / 90) = 0
)
def test_the_references_cosine(update: int, expected: float) -> None:
    settings = steps("cosine", 10)
    rate = lr_at(update, peak=PEAK, total=TOTAL, schedule=settings)
    assert rate == pytest.approx(expected, abs=1e-19)


def test_the_references_wsd() -> None:
    rates = curve(wsd("linear"), peak=PEAK, total=TOTAL)
    assert rates[9:81] == [PEAK] * 72  # stable up to t = 80 = 100 - 20
    assert rates[90] == pytest.approx(1e-4, abs=1e-19)  # half of 20 done
    assert rates[100] == 0.0
    assert rates[80:] == sorted(rates[80:], reverse=True)


@pytest.mark.parametrize(
    ("decay", "quarter", "half"),
    [
        ("linear", 1.5e-4, 1e-4),
        ("1-sqrt", 1e-4, 0.58578644e-4),  # 1 - 0.5, 1 - 0.70710678
        ("cosine", 1.70710678e-4, 1e-4),  # (1 + 0.70710678) / 2
    ],
)
def test_decay_shapes_by_hand(decay: str, quarter: float, half: float) -> None:
    rates = curve(wsd(decay), peak=PEAK, total=TOTAL)
    assert [rates[85], rates[90], rates[100]] == pytest.approx([quarter, half, 0.0], abs=1e-12)


def test_the_floor_of_a_decay() -> None:
    rates = curve(wsd("1-sqrt", warmup=0, floor=0.5, decay_fraction=0.5), peak=8.0, total=8)
    # 4 of 8 decay: 8 * (0.5 + 0.5 * (1 - sqrt(1/4, 2/4, 3/4, 1)))
    assert rates == pytest.approx([8, 8, 8, 8, 6, 5.17157288, 4.53589838, 4])


def test_warmup_in_steps() -> None:
    assert warmup_updates(steps("linear", 3), total=5) == 3
    assert curve(steps("linear", 2), peak=8.0, total=5) == [4.0, 8.0, 8.0, 4.0, 0.0]


@pytest.mark.parametrize("decay", DECAYS)
def test_transformers_gives_the_same_decay(decay: str) -> None:
    from transformers.optimization import _get_wsd_scheduler_lambda

    rates = curve(wsd(decay, floor=0.1), peak=1.0, total=TOTAL)
    theirs = [
        _get_wsd_scheduler_lambda(
            t,
            num_warmup_steps=10,
            num_stable_steps=70,
            num_decay_steps=20,
            warmup_type="linear",
            decay_type=decay,
            min_lr_ratio=0.1,
            num_cycles=0.5,
        )
        for t in range(TOTAL)
    ]
    assert rates[10:] == pytest.approx(theirs[10:], abs=1e-12)


@given(
    decay=st.sampled_from(DECAYS),
    warmup=st.integers(0, 10),
    start=st.integers(10, 30),
    more=st.lists(st.integers(2, 40), min_size=2, max_size=2),
)
def test_a_declared_start_makes_runs_agree_up_to_it(
    decay: str, warmup: int, start: int, more: list[int]
) -> None:
    """What branching a decay from the stable phase needs of a schedule."""
    settings = wsd(decay, warmup=warmup, decay_fraction=None, decay_start=start)
    one, other = (curve(settings, peak=1.0, total=start + longer) for longer in more)
    assert one[: start + 1] == other[: start + 1]
    assert one[-1] == other[-1] == 0.0
    assert length_findings(settings, total=start + more[0]) == []


def test_planted_fault_a_fraction_makes_runs_of_two_lengths_differ() -> None:
    one, other = (curve(schedule("cosine", warmup=0.1), peak=1.0, total=n) for n in (20, 40))
    assert one[:10] != other[:10]


@pytest.mark.parametrize(
    ("settings", "total", "expected"),
    [
        (steps("cosine", 6), 6, []),
        (steps("cosine", 7), 6, ["schedule.warmup_steps"]),
        (wsd("linear", warmup=0, decay_fraction=1.0), 10, ["schedule.decay"]),
        (wsd("linear", warmup=0, decay_fraction=0.9), 10, []),
        (wsd("linear", warmup=9, decay_fraction=0.3), 10, ["schedule.decay"]),
        (wsd("linear", warmup=7, decay_fraction=0.3), 10, []),
        (wsd("linear", warmup=0, decay_fraction=0.01), 10, ["schedule.decay"]),
        (wsd("linear", warmup=0, decay_fraction=None, decay_start=9), 10, ["schedule.decay"]),
        (wsd("linear", warmup=0, decay_fraction=None, decay_start=8), 10, []),
    ],
)
def test_what_does_not_fit_is_named(settings: Schedule, total: int, expected: list[str]) -> None:
    findings = length_findings(settings, total=total)
    assert [finding.field for finding in findings] == expected
    assert {finding.rule for finding in findings} <= {"schedule-length"}


def test_where_a_decay_starts() -> None:
    assert decay_start(wsd("linear"), total=TOTAL) == 80
    assert decay_start(steps("cosine", 10), total=TOTAL) == 10
    assert decay_start(steps("constant", 10), total=TOTAL) == 100
