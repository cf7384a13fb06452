"""Sets that are alike, found exactly: a prefix-filter join on Jaccard similarity.

Sets that alike share at least one of their rarest elements (the prefix filter of set-similarity
joins: Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007), so only sets that meet
there are compared. No pair is missed, there is no seed, and what all sets share is no place to
meet. Elements are compared by hashes of 64 bits.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096  # sets compared at once: bounds memory where very many meet
SLACK = 1e-6  # a size beside a bound that a float misses is let in
Elements = frozenset[str]


class Ranked(NamedTuple):
    """Sets as numbers of their elements, rarest first; those that one set alone has are left out.

    Set i holds numbers[starts[i] : starts[i + 1]], shape (numbers,), and sizes[i] elements in all.
    `distinct` is the count of numbers.
    """

    numbers: NDArray[np.int32]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    distinct: int

    def of(self, row: int) -> NDArray[np.int32]:
        """The numbers of one set."""
        return self.numbers[self.starts[row] : self.starts[row + 1]]


def hashes(of: Elements) -> NDArray[np.uint64]:
    """One 64-bit hash per element, the same in every process; shape (elements,)."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in of)
    return np.frombuffer(b"".join(digests), "<u8")


def ranked(sets: Iterable[Elements]) -> Ranked:
    """Number the elements of all sets by how many sets have them."""
    rows: list[NDArray[Any]] = [hashes(of) for of in sets]
    sizes = np.array([len(row) for row in rows], np.int64)
    values, times = np.unique(np.concatenate([np.empty(0, "<u8"), *rows]), return_counts=True)
    values, times = values[times > 1], times[times > 1]
    rank = np.empty(len(values), np.int32)
    rank[np.lexsort((values, times))] = np.arange(len(values), dtype=np.int32)
    for place, row in enumerate(rows):  # in place: both forms at once would be twice the memory
        rows[place] = _numbers(row, values, rank)
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    numbers = np.concatenate([np.empty(0, np.int32), *rows])
    return Ranked(numbers, starts, sizes, len(values))


def _numbers(
    row: NDArray[np.uint64], values: NDArray[np.uint64], rank: NDArray[np.int32]
) -> NDArray[np.int32]:
    found = np.searchsorted(values, row)
    known = found < len(values)
    known[known] = values[found[known]] == row[known]
    return np.sort(rank[found[known]])


def meeting_points(sets: Ranked, threshold: float) -> list[list[int]]:
    """For each set the numbers of its rarest elements, so many that two sets of at least this
    similarity have one in common.

    Alike sets share at least r = ceil(threshold * size) elements of each; so with all elements
    in one order, some shared element is among the first size - r + 1 of both. Rarest first, and
    an element that one set alone has comes before all others and is left out.
    """
    points = []
    for row, size in enumerate(sets.sizes.tolist()):
        shared = sets.of(row)
        needed = ceil(threshold * size - 1e-9)  # a float above the true product loses nothing
        points.append(shared[: max(0, len(shared) - needed + 1)].tolist())
    return points


class Meetings:
    """Who stands at which meeting points, by size.

    A set of size s is alike to one of size z only with t / (1 + t) * (s + z) shared elements (the
    positional filter of Xiao et al. 2008): an element that fewer follow is no place to meet a set
    of that size. So sets of one frame do not all meet just below the threshold.
    """

    def __init__(self, sets: Ranked, threshold: float) -> None:
        self._sets, self._threshold = sets, threshold
        self._points = meeting_points(sets, threshold)
        self._standing: dict[int, dict[int, list[int]]] = {}

    def add(self, row: int) -> None:
        """Let a set stand at its points."""
        size = int(self._sets.sizes[row])
        for point in self._points[row]:
            self._standing.setdefault(point, {}).setdefault(size, []).append(row)

    def met(self, row: int) -> list[int]:
        """Those that stand where this set does and may be alike to it by size, in order."""
        size, ratio = int(self._sets.sizes[row]), 1.0 + 1.0 / self._threshold
        shared = int(self._sets.starts[row + 1] - self._sets.starts[row])
        smallest = self._threshold * size - SLACK
        found: set[int] = set()
        for following, point in zip(range(shared, 0, -1), self._points[row], strict=False):
            largest = following * ratio - size + SLACK
            for other, rows in self._standing.get(point, {}).items():
                if smallest <= other <= largest:
                    found.update(rows)
        return sorted(found)


class Comparison:
    """Compares a set with others than itself by what they share, many at once.

    Cost: the elements of the others, whatever they share. Memory: a byte per distinct element.
    """

    def __init__(self, sets: Ranked) -> None:
        self._sets = sets
        self._marked = np.zeros(sets.distinct, np.bool_)

    def first(self, row: int, others: Sequence[int], threshold: float) -> tuple[int, float] | None:
        """The first of the others that has this Jaccard similarity to the row, and how much."""
        return next(self.all(row, others, threshold), None)

    def all(self, row: int, others: Sequence[int], threshold: float) -> Iterator[tuple[int, float]]:
        """All of the others that have it, in their order."""
        for start in range(0, len(others), BLOCK):
            block = np.array(others[start : start + BLOCK], np.int64)
            similar = self._similarities(row, block)
            for place in np.flatnonzero(similar >= threshold):
                yield int(block[place]), float(similar[place])

    def _similarities(self, row: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Jaccard similarity of the row to each other set, in [0, 1]; 0 when both are empty."""
        sets, mine = self._sets, self._sets.of(row)
        starts = sets.starts[others]
        counts = sets.starts[others + 1] - starts
        ends = np.cumsum(counts)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        self._marked[mine] = True
        seen = np.concatenate([[0], np.cumsum(self._marked[sets.numbers[places]])])
        self._marked[mine] = False
        shared = seen[ends] - seen[ends - counts]
        union = sets.sizes[row] + sets.sizes[others] - shared
        similar: NDArray[np.float64] = shared / np.maximum(union, 1)
        return similar


def first_alike(sets: Iterable[Elements], threshold: float) -> dict[int, tuple[int, float]]:
    """Sets that are alike to an earlier one that stays: set -> (the first such, similarity)."""
    numbered = ranked(sets)
    comparison, meetings = Comparison(numbered), Meetings(numbered, threshold)
    alike: dict[int, tuple[int, float]] = {}
    for row in range(len(numbered.sizes)):
        if found := comparison.first(row, meetings.met(row), threshold):
            alike[row] = found
        else:
            meetings.add(row)
    return alike
