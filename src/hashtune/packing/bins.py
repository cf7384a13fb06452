"""Bin packing of document lengths into rows, never worse than best-fit decreasing.

Both algorithms work on the histogram of lengths, so the time depends on the distinct lengths and
hardly on the documents. Best-fit decreasing places all documents of a length at once. Where it
stays above the lower bound, rows are also filled longest first, the rest of each by a subset sum,
and a pattern found once is used as often as the histogram allows; the packing with fewer rows is
taken. bench/pack_lengths.py measures both: 1,000,000 lengths take 0.5 to 2.5 s on one slow core.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hashtune.packing.subset_sum import subset_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUBSET_SUM_BITS = 3_000_000_000  # bits shifted before best fit takes the rest: about 1 s
SHIFT_BITS = 10_000  # what a shift costs whatever its length

Bins = list[list[int]]
Bucket = tuple[int, int, int]  # a length, the place of its first document, how many there are
Placed = tuple[int, range, int]  # first document, the rows, how many documents each of them takes


def lower_bound(lengths: Sequence[int], capacity: int) -> int:
    """Rows that no packing can go below: ceil(sum of lengths / capacity)."""
    return -(-sum(lengths) // capacity)


def pack_lengths(lengths: Sequence[int], capacity: int) -> Bins:
    """Pack documents into as few rows as we can, never more than best-fit decreasing needs.

        lengths [7, 5, 4, 3, 2, 2], capacity 8  ->  [[0], [1, 3], [2, 4, 5]]

    Args:
        lengths: tokens of each document, each in 1..capacity.
        capacity: tokens a row holds.

    Returns:
        The document indices of each row, ascending in a row, rows by their first index. The same
        lengths in the same order always give the same rows.

    Raises:
        ValueError: a length is not in 1..capacity.
    """
    order, buckets = _histogram(lengths, capacity)
    rows, placed = _best_fit(buckets, capacity)
    if rows > lower_bound(lengths, capacity):
        filled_rows, filled = _fill_rows(buckets, capacity)
        if filled_rows <= rows:
            placed = filled
    return _bins(order, placed)


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> Bins:
    """Longest document first, each into the fullest row that still has room.

    Same arguments, order of the result and errors as `pack_lengths`.
    """
    order, buckets = _histogram(lengths, capacity)
    return _bins(order, _best_fit(buckets, capacity)[1])


def _histogram(lengths: Sequence[int], capacity: int) -> "tuple[NDArray[Any], list[Bucket]]":
    """Documents longest first (equal ones by index), and a bucket for each distinct length."""
    values = np.asarray(lengths, dtype=np.int64)
    for index in np.flatnonzero((values < 1) | (values > capacity))[:1]:
        raise ValueError(f"length {values[index]} at index {index} is not in 1..{capacity}")
    order = np.argsort(-values, kind="stable")
    distinct, counts = np.unique(values, return_counts=True)
    first, buckets = 0, list[Bucket]()
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    for length, count in reversed(list(pairs)):
        buckets.append((length, first, count))
        first += count
    return order, buckets


def _best_fit(buckets: Sequence[Bucket], capacity: int, rows: int = 0) -> tuple[int, list[Placed]]:
    """Best-fit decreasing of buckets, longest first; `rows` rows are there and full.

    Document by document, the fullest row with room R takes R // length documents in a row, and so
    do the others of that room: `rooms` holds the distinct free sizes, sorted, and `stacks` their
    rows, the last one first to be used.
    """
    rooms: list[int] = []
    stacks: dict[int, list[range]] = {}
    placed: list[Placed] = []
    for length, start, count in buckets:
        first, end = start, start + count
        while first < end:
            at = bisect_left(rooms, length)
            room = rooms[at] if at < len(rooms) else capacity
            each = min(room // length, end - first)
            wanted = (end - first) // each
            if at == len(rooms):
                taken = range(rows, rows + wanted)
                rows += wanted
            else:
                taken = _take(stacks[room], wanted)
                if not stacks[room]:
                    del stacks[room], rooms[at]
            placed.append((first, taken, each))
            first += each * len(taken)
            left = room - each * length
            if left in stacks:
                stacks[left].append(taken)
            elif left:
                stacks[left] = [taken]
                insort(rooms, left)
    return rows, placed


def _take(stack: list[range], wanted: int) -> range:
    """At most `wanted` rows of the last range, the last row first."""
    rows = stack.pop()
    if wanted < len(rows):
        stack.append(rows[:-wanted])
        rows = rows[-wanted:]
    return rows[::-1]


def _fill_rows(
    buckets: Sequence[Bucket], capacity: int, budget: int = SUBSET_SUM_BITS
) -> tuple[int, list[Placed]]:
    """Longest first, the rest of each row by subset sum; equal lengths leave in index order.

    Once `budget` bits have been shifted, best-fit decreasing places what is left.
    """
    ascending = [length for length, _, _ in reversed(buckets)]
    counts = {length: count for length, _, count in buckets}
    ends = {length: first + count for length, first, count in buckets}
    rows, placed = 0, list[Placed]()
    while ascending and budget > 0:
        longest = ascending[-1]
        counts[longest] -= 1
        pattern, shifts = subset_sum(ascending, counts, capacity - longest)
        budget -= shifts * (capacity - longest + SHIFT_BITS)
        counts[longest] += 1
        pattern[longest] += 1
        times = min(counts[length] // used for length, used in pattern.items())
        for length, used in pattern.items():
            placed.append((ends[length] - counts[length], range(rows, rows + times), used))
            counts[length] -= used * times
            if not counts[length]:
                del ascending[bisect_left(ascending, length)]
        rows += times
    rest = [(size, ends[size] - counts[size], counts[size]) for size in reversed(ascending)]
    rows, others = _best_fit(rest, capacity, rows)
    return rows, placed + others


def _bins(order: "NDArray[Any]", placed: Sequence[Placed]) -> Bins:
    """Rows as lists of documents, ascending in a row, rows by their first document."""
    if not placed:
        return []
    firsts, taken, each = zip(*placed, strict=True)
    table = [[first, rows.start, rows.step] for first, rows in zip(firsts, taken, strict=True)]
    sizes = np.array([len(rows) for rows in taken]) * each
    first, start, step = np.repeat(np.array(table), sizes, axis=0).T
    inside = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row_of = np.empty_like(order)
    row_of[order[first + inside]] = start + step * (inside // np.repeat(each, sizes))
    _, firsts_of, numbers = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty_like(firsts_of)
    rank[np.argsort(firsts_of)] = np.arange(len(rank))
    row_of = rank[numbers]
    documents = np.argsort(row_of, kind="stable").tolist()
    edges = np.concatenate([[0], np.cumsum(np.bincount(row_of))]).tolist()
    return [documents[a:b] for a, b in pairwise(edges)]
