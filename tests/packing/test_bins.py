"""Bins: the worked case, the guarantee against an independent best-fit decreasing, determinism."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.packing import bins, subset_sum
from hashtune.packing.bins import best_fit_decreasing, lower_bound, pack_lengths

CASES = st.integers(1, 60).flatmap(
    lambda capacity: st.tuples(st.lists(st.integers(1, capacity), max_size=60), st.just(capacity))
)


def naive_bfd(lengths: list[int], capacity: int) -> int:
    """Rows of best-fit decreasing, written the slow way."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms.remove(min(fitting))
            rooms.append(min(fitting) - length)
        else:
            rooms.append(capacity - length)
    return len(rooms)


def test_c33_worked_case_of_three_rows() -> None:
    lengths = [7, 5, 4, 3, 2, 2]
    packed = pack_lengths(lengths, 8)
    assert packed == [[0], [1, 3], [2, 4, 5]]
    assert sum(lengths[i] for members in packed for i in members) == 23
    assert best_fit_decreasing(lengths, 8) == [[0], [1, 3], [2, 4, 5]]
    assert lower_bound(lengths, 8) == 3


def test_edges() -> None:
    assert pack_lengths([], 8) == []
    assert pack_lengths([8], 8) == [[0]]
    assert pack_lengths([1, 1, 1], 1) == [[0], [1], [2]]
    assert lower_bound([], 8) == 0


@pytest.mark.parametrize("lengths", [[9], [0], [3, -1]])
def test_lengths_outside_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="index"):
        pack_lengths(lengths, 8)


def test_beats_best_fit_decreasing() -> None:
    # BFD puts 5 with 3 and is left with 4 + 2 + 2 + 2; an exact fill pairs 5 + 3 + 2 and 4 + 4 + 2
    lengths = [5, 4, 4, 3, 2, 2]
    assert naive_bfd(lengths, 10) == 3
    assert pack_lengths(lengths, 10) == [[0, 3, 4], [1, 2, 5]]


@settings(deadline=None, max_examples=300)
@given(CASES)
def test_every_document_once_and_never_more_rows_than_bfd(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    packed = pack_lengths(lengths, capacity)
    assert sorted(i for members in packed for i in members) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in members) <= capacity for members in packed)
    assert lower_bound(lengths, capacity) <= len(packed) <= naive_bfd(lengths, capacity)
    assert len(best_fit_decreasing(lengths, capacity)) == naive_bfd(lengths, capacity)
    assert packed == pack_lengths(list(lengths), capacity)


def fill(lengths: list[int], capacity: int, budget: int = bins.SUBSET_SUM_BITS) -> bins.Bins:
    order, buckets = bins._histogram(lengths, capacity)
    rows, placed = bins._fill_rows(buckets, capacity, budget)
    filled = bins._bins(order, placed)
    assert len(filled) == rows
    return filled


@settings(deadline=None, max_examples=200)
@given(CASES, st.sampled_from([0, 1, 50_000, bins.SUBSET_SUM_BITS]))
def test_filling_alone_loses_nothing(case: tuple[list[int], int], budget: int) -> None:
    lengths, capacity = case
    filled = fill(lengths, capacity, budget)
    assert sorted(i for members in filled for i in members) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in members) <= capacity for members in filled)


def test_without_a_budget_filling_is_best_fit_decreasing() -> None:
    rng = random.Random(4)
    lengths = [rng.randint(1, 200) for _ in range(500)]
    assert fill(lengths, 256, 0) == best_fit_decreasing(lengths, 256)
    five = [5, 4, 4, 3, 2, 2]
    assert (len(fill(five, 10)), len(fill(five, 10, 0))) == (2, 3)


def test_filling_with_thinned_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "CANDIDATES", 4)
    rng = random.Random(3)
    lengths = [rng.randint(1, 200) for _ in range(500)]
    assert sorted(i for members in fill(lengths, 256) for i in members) == list(range(500))


def test_equal_documents_leave_in_the_order_they_came() -> None:
    """Frozen: another order would change every adapter ever trained."""
    # of the rows [0, 1] and [2, 7], both with room 2, the younger one is filled first
    assert pack_lengths([3, 3, 3, 2, 2, 2, 1, 3], 8) == [[0, 1, 4], [2, 3, 7], [5, 6]]
    assert pack_lengths([4, 4, 4, 4, 3, 3, 2, 2, 2, 2], 10) == [[0, 1, 7], [2, 3, 6], [4, 5, 8, 9]]


def test_many_documents_of_any_length_come_close_to_the_lower_bound() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 1024) for _ in range(100_000)]
    rows = len(pack_lengths(lengths, 1024))
    assert lower_bound(lengths, 1024) <= rows <= 1.01 * lower_bound(lengths, 1024)


def test_many_documents_like_those_of_a_chat_reach_the_lower_bound() -> None:
    rng = random.Random(0)
    lengths = [int(min(1024, max(60, rng.lognormvariate(5.3, 0.4)))) for _ in range(7473)]
    rows = len(pack_lengths(lengths, 1024))
    assert rows == lower_bound(lengths, 1024) < len(best_fit_decreasing(lengths, 1024))


@pytest.mark.parametrize(
    ("lengths", "capacity", "rows"),
    [
        ([1] * 100_000, 1024, 98),  # 97.66 rows
        ([513] * 100_000, 1024, 100_000),  # one over the half: nothing pairs
        ([512] * 100_000, 1024, 50_000),
        ([342] * 100_000, 1024, 50_000),  # one over the third
        ([341] * 100_000, 1024, 33_334),
        ([1024] * 100_000, 1024, 100_000),
        ([1] * 100_000, 1, 100_000),
        ([513, 511] * 50_000, 1024, 50_000),
        ([600, 425] * 50_000, 1024, 75_000),  # one over a pair: 425 goes with 425
        ([1, 1024] * 50_000, 1024, 50_049),
        ([1, 999_999] * 50_000, 1_000_000, 50_000),
        ([7, 3] * 50_000, 10, 50_000),
        (list(range(1, 2001)), 2001, 1000),  # all different: n with 2001 - n
    ],
    ids=lambda value: None if isinstance(value, list) else str(value),
)
def test_lengths_that_are_hostile_have_the_rows_worked_by_hand(
    lengths: list[int], capacity: int, rows: int
) -> None:
    packed = pack_lengths(lengths, capacity)
    assert len(packed) == rows <= len(best_fit_decreasing(lengths, capacity))
    assert sorted(i for members in packed for i in members) == list(range(len(lengths)))
    assert max(sum(lengths[i] for i in members) for members in packed) <= capacity


@pytest.mark.parametrize("length", [513, 341, 1])
def test_a_million_equal_lengths_take_no_time_worth_naming(length: int) -> None:
    """0.3 to 0.6 s on one slow core; the limit is that of bench/pack_lengths.py."""
    started = time.process_time()
    pack_lengths([length] * 1_000_000, 1024)
    assert time.process_time() - started < 3


def test_zeros_among_a_million_are_refused_with_their_place() -> None:
    lengths = [5] * 1_000_000
    lengths[777_777] = 0
    with pytest.raises(ValueError, match=r"length 0 at index 777777 is not in 1\.\.1024"):
        pack_lengths(lengths, 1024)
