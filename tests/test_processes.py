"""One function over many items: the same results in the same order for any number of processes."""

import os
from collections.abc import Iterator

import pytest

from hashtune.processes import IN_FLIGHT, in_order


def nothing() -> None:
    pass


def square(number: int) -> int:
    if number == 13:
        raise ValueError("thirteen")
    return number * number


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_results_come_in_order(processes: int) -> None:
    found = in_order(square, range(12), processes=processes, start=nothing)
    assert list(found) == [n * n for n in range(12)]
    assert list(in_order(square, [], processes=processes, start=nothing)) == []


def test_the_function_need_not_be_sent_and_each_worker_is_started() -> None:
    started: list[int] = []
    found = in_order(
        lambda item: (item, os.getpid(), list(started)),
        range(4),
        processes=2,
        start=lambda: started.append(os.getpid()),
    )
    for item, (number, pid, seen) in enumerate(found):
        assert (item, [pid]) == (number, seen)
        assert pid != os.getpid()


def test_few_items_are_read_ahead() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    found = in_order(str, items(), processes=2, start=nothing)
    assert [next(found) for _ in range(3)] == ["0", "1", "2"]
    assert len(read) <= 3 + 2 * IN_FLIGHT
    found.close()


def test_a_fault_in_a_worker_is_raised_here() -> None:
    found = in_order(square, range(20), processes=2, start=nothing)
    with pytest.raises(ValueError, match="thirteen"):
        list(found)
