"""Equal values in columns, by sorting: what a dict of all rows would need ten times the memory
for."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Runs(NamedTuple):
    """order: places sorted by value, equal ones as they stood; start[i]: the place in `order` where
    the run of values equal to that of order[i] begins.

        values  b a b a a
        order   1 3 4 0 2
        start   0 0 0 3 3
    """

    order: NDArray[np.int64]
    start: NDArray[np.int64]


def runs(*columns: NDArray[Any]) -> Runs:
    """Sort by all columns together; equal is what is equal in each of them."""
    order = np.lexsort(columns)
    start = np.arange(len(order))
    equal = np.zeros(len(order), bool)
    equal[1:] = True
    for column in columns:
        ordered = column[order]
        equal[1:] &= ordered[1:] == ordered[:-1]
    start[equal] = 0
    np.maximum.accumulate(start, out=start)
    return Runs(order, start)


def occurrences(values: NDArray[Any]) -> NDArray[np.int32]:
    """1 for the first place with a value, 2 for the second, and so on."""
    order, start = runs(values)
    times = np.empty(len(values), np.int32)
    np.subtract(np.arange(1, len(values) + 1), start, out=start)
    times[order] = start
    return times


def are_in(values: NDArray[Any], known: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the values are among `known`, which is sorted; memory for `values` alone."""
    places = np.searchsorted(known, values)
    found = places < len(known)
    found[found] = known[places[found]] == values[found]
    return found
