"""What a max_seq_len costs: case C33 and a table worked by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.chat.limits import (
    Distribution,
    Gains,
    candidates,
    curve,
    distribution,
    limits_report,
    loss,
    percentiles,
    suggestion,
)


def of(*pairs: tuple[int, int]) -> Distribution:
    """The distribution of examples of (tokens, trained tokens), each of one turn."""
    gains = Gains()
    for size, count in pairs:
        gains.count(size, examples=1, turns=1, tokens=size, trained=count)
    return distribution(gains)


FIVE = of((300, 10), (64, 200 - 140), (65, 20), (100, 30), (10, 1))


def test_c33_one_over_long_row_loses_its_13_tokens_of_23() -> None:
    found = of((13, 5), (10, 4))
    assert loss(found, 10) == {
        "max_seq_len": 10,
        "examples_lost": 1,
        "turns_lost": 1,
        "tokens_lost": 13,  # 56.5 % of 23
        "trained_tokens_lost": 5,
    }
    assert loss(found, 13)["tokens_lost"] == 0
    assert loss(found, 9) == {
        "max_seq_len": 9,
        "examples_lost": 2,
        "turns_lost": 2,
        "tokens_lost": 23,
        "trained_tokens_lost": 9,
    }


def test_candidates_are_powers_of_two_and_percentiles() -> None:
    assert candidates(of()) == []
    assert candidates(of((3, 1), (9, 1))) == [3, 9, 64]
    assert candidates(FIVE) == [64, 65, 128, 256, 300, 512]
    assert candidates(of(*((size, 1) for size in range(1, 101)))) == [50, 64, 90, 99, 100, 128]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], {}),
        ([7], {"p50": 7, "p90": 7, "p99": 7, "max": 7}),
        (range(1, 101), {"p50": 50, "p90": 90, "p99": 99, "max": 100}),
        ([5] * 9 + [8], {"p50": 5, "p90": 5, "p99": 8, "max": 8}),
    ],
)
def test_nearest_rank(sizes: Sequence[int], expected: dict[str, int]) -> None:
    assert percentiles(of(*((size, 0) for size in sizes))) == expected


@given(st.lists(st.integers(1, 12), min_size=1, max_size=400))
def test_percentiles_are_those_of_all_lengths_written_out(sizes: list[int]) -> None:
    ordered = sorted(sizes)
    found = percentiles(of(*((size, 0) for size in sizes)))
    ranks = {f"p{q}": ordered[-(-q * len(ordered) // 100) - 1] for q in (50, 90, 99)}
    assert found == {**ranks, "max": ordered[-1]}


def test_the_table() -> None:
    table = limits_report(FIVE, of())["limits"]
    lost = [(row["max_seq_len"], row["examples_lost"], row["trained_tokens_lost"]) for row in table]
    assert lost == [(64, 3, 60), (65, 2, 40), (128, 1, 10), (256, 1, 10), (300, 0, 0), (512, 0, 0)]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], {}),
        ([(64, 5)], {"loses_nothing": 64, "loses_one_percent": 64}),
        ([(65, 5)], {"loses_nothing": 128, "loses_one_percent": 128}),
        # 1 of 100 trained tokens may go with the long one, 2 of 101 may not
        ([(99, 99), (400, 1)], {"loses_nothing": 448, "loses_one_percent": 128}),
        ([(99, 99), (400, 2)], {"loses_nothing": 448, "loses_one_percent": 448}),
    ],
)
def test_suggestion(pairs: list[tuple[int, int]], expected: dict[str, int]) -> None:
    assert suggestion(of(*pairs)) == expected


@given(st.lists(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))))
def test_suggested_limits_are_the_smallest(pairs: list[tuple[int, int]]) -> None:
    found = of(*pairs)
    for limit, accepted in zip(suggestion(found).values(), (0.0, 0.01), strict=False):
        smaller = [size for size in range(64, limit, 64)]
        trained = sum(trained for _, trained in pairs)
        if accepted:
            assert loss(found, limit)["trained_tokens_lost"] <= accepted * trained
            assert all(loss(found, s)["trained_tokens_lost"] > accepted * trained for s in smaller)
        else:
            assert loss(found, limit)["examples_lost"] == 0
            assert all(loss(found, s)["examples_lost"] for s in smaller)


def test_the_curve_is_small_and_ends_with_everything() -> None:
    lines = curve(FIVE).splitlines()
    assert len(lines) == 65
    assert lines[0] == "max_seq_len\texamples\ttrained_tokens"
    assert lines[1] == "5\t0.000000\t0.000000"
    assert lines[-1] == "300\t1.000000\t1.000000"
    assert "66\t0.600000\t0.669421" in lines  # 3 of 5, 81 of 121
    assert curve(of()).splitlines() == lines[:1]
    assert len(curve(of((3, 1))).splitlines()) == 4
