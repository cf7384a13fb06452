"""The longest row and the largest micro-batch that fit, by bisection on the closed form.

Bisection needs a need that never falls as the row or the micro-batch grows. It falls at one place,
the seam: a loss of one chunk keeps its logits for the backward, one of several computes them again
(closed_form.py). So each side of the seam is searched for itself, and the far side only when all of
the near one fits: a run has rows of all lengths, and every shorter one must fit too. A test
compares with a scan of all lengths (tests/memory/test_limits.py).
"""

from collections.abc import Callable
from dataclasses import replace

from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import Buckets, Workload
from hashtune.memory.sharding import Sharding, rank_buckets

MOST_TOKENS = 1 << 24  # where a search ends for a base without a limit of positions
MOST_ROWS = 1 << 16


def buckets_of(work: Workload, sharding: Sharding | None = None) -> Buckets:
    """All buckets, of one rank where the model is shared by several."""
    return estimate(work) if sharding is None else rank_buckets(work, sharding)


def needed_bytes(work: Workload, sharding: Sharding | None = None) -> int:
    """The sum of all buckets."""
    return sum(buckets_of(work, sharding).values())


def with_row(work: Workload, tokens: int) -> Workload:
    """The same step with a longest row of `tokens`. A shorter one may hold as many targets as it
    has tokens, up to what the longest has; a longer one as large a share as the longest."""
    if tokens <= work.longest_row:
        return replace(work, longest_row=tokens, trained=min(work.trained, tokens))
    trained = -(-work.trained * tokens // work.longest_row)
    return replace(work, longest_row=tokens, trained=trained)


def longest_row(
    work: Workload, *, available: int, positions: int | None, sharding: Sharding | None = None
) -> int:
    """The most tokens of a row such that a micro-batch of it, and of every shorter one, fits; at
    most `positions`, which is all that the base has. 0 when not even one token fits."""
    most = MOST_TOKENS if positions is None else positions - work.virtual_tokens
    seam = _largest(lambda n: work.micro * with_row(work, n).trained <= work.loss_chunk, 1, most)
    return _search(
        lambda n: needed_bytes(with_row(work, n), sharding) <= available, seam=seam, most=most
    )


def largest_micro(work: Workload, *, available: int, sharding: Sharding | None = None) -> int:
    """The most rows of `longest_row` tokens that fit into a micro-batch; 0 when not even one."""
    seam = work.loss_chunk // max(1, work.trained)
    return _search(
        lambda n: needed_bytes(replace(work, micro=n), sharding) <= available,
        seam=seam,
        most=MOST_ROWS,
    )


def _search(fits: Callable[[int], bool], *, seam: int, most: int) -> int:
    near = min(seam, most)
    found = _largest(fits, 1, near)
    return found if found < near else _largest(fits, near + 1, most) or found


def _largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from `low` to `high` that fits, 0 for none. Whatever lies below one that
    fits must fit too. Steps double before they are halved: about 2 log2(answer) calls."""
    if low > high or not fits(low):
        return 0
    good, step = low, 1
    while good + step <= high and fits(good + step):
        good, step = good + step, 2 * step
    bad = min(good + step, high + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
