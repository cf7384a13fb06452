"""Equal values found by sorting, beside the same done with a dict."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.runs import are_in, occurrences, runs

VALUES = st.lists(st.integers(0, 5), max_size=20)


def test_runs_of_equal_values():
    order, start = runs(np.frombuffer(b"babaa", np.uint8))
    assert list(order) == [1, 3, 4, 0, 2]
    assert list(start) == [0, 0, 0, 3, 3]


def test_equal_is_what_is_equal_in_every_column():
    order, start = runs(np.array([1, 1, 2, 1]), np.array([7, 8, 7, 7]))
    assert [int(order[place]) for place in start] == [0, 0, 2, 1]
    assert list(order) == [0, 3, 2, 1]


def test_occurrences():
    assert list(occurrences(np.array([7, 8, 7, 7, 8]))) == [1, 1, 2, 3, 2]
    assert list(occurrences(np.array([], np.uint64))) == []


@settings(deadline=None)  # a busy machine is no fault
@given(values=VALUES, known=VALUES)
def test_as_a_dict_would_do_it(values, known):
    seen: dict[int, int] = {}
    expected = []
    for value in values:
        seen[value] = seen.get(value, 0) + 1
        expected.append(seen[value])
    assert list(occurrences(np.array(values, np.int64))) == expected
    found = are_in(np.array(values, np.int64), np.unique(np.array(known, np.int64)))
    assert list(found) == [value in known for value in values]
