"""Subset sum: the largest reachable sum, against trying every subset."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hashtune.packing.subset_sum import subset_sum


def test_long_lengths_are_preferred() -> None:
    assert subset_sum([2, 3, 4], {2: 3, 3: 1, 4: 1}, 6) == (Counter({4: 1, 2: 1}), 3)
    assert subset_sum([5], {5: 2}, 4) == (Counter(), 0)


@given(st.lists(st.integers(1, 20), max_size=9), st.integers(0, 60))
def test_no_subset_comes_closer(lengths: list[int], target: int) -> None:
    counts = Counter(lengths)
    used, _ = subset_sum(sorted(counts), dict(counts), target)
    sums = {0}
    for length in lengths:
        sums |= {total + length for total in sums}
    assert sum(used.elements()) == max(total for total in sums if total <= target)
    assert used <= counts
