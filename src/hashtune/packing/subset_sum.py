"""The fullest rest of a row: a subset sum over the lengths that are left, on bits of an integer."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

CANDIDATES = 512  # distinct lengths tried per row; more cost time and hardly ever save a row


def subset_sum(
    ascending: Sequence[int], counts: dict[int, int], target: int
) -> tuple[Counter[int], int]:
    """The multiset of available lengths with the largest sum <= target, long lengths preferred;
    and how many shifts it took.

    Bit s of `reach` says that some multiset sums to s. A length that is there c times enters in
    portions of 1, 2, 4, ... (log c shifts); the states before each portion lead the way back.
    """
    inside = (1 << (target + 1)) - 1
    reach, trail = 1, list[tuple[int, int, int]]()
    for length in _candidates(ascending, target):
        left, portion = min(counts[length], target // length), 1
        while left and not reach >> target & 1:
            portion = min(portion, left)
            grown = (reach | reach << length * portion) & inside
            if grown != reach:
                trail.append((reach, length, portion))
                reach = grown
            left, portion = left - portion, portion * 2
        if reach >> target & 1:
            break
    total, used = reach.bit_length() - 1, Counter[int]()
    for before, length, portion in reversed(trail):
        if not before >> total & 1:
            used[length] += portion
            total -= length * portion
    return used, len(trail)


def _candidates(ascending: Sequence[int], target: int) -> Iterator[int]:
    """Lengths that fit, longest first, thinned evenly by rank to at most CANDIDATES."""
    fitting = bisect_left(ascending, target + 1)
    stride = -(-fitting // CANDIDATES) or 1
    return (ascending[rank] for rank in range(fitting - 1, -1, -stride))
