"""A limit on the CPU time of a computation that may never end, such as a user's pattern.

Python's own `re` tries all ways of a pattern like (a+)+$ but looks for signals meanwhile. A library
without backtracking (RE2) knows no look-behind, which the shipped lists use. Time counts for this
process alone, so a busy machine changes nothing, and whoever runs out must refuse its input: what
a stage writes never depends on time.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 10.0  # a text of 16 MiB, the most a row holds, takes a sound pattern about a second


class OutOfPatience(Exception):
    """The time is over."""


@contextmanager
def patience() -> Iterator[Callable[[float], object]]:
    """In this block, call the given function with seconds of CPU time: OutOfPatience is raised
    once they are over, unless it is called again (0 waits for ever). Main thread only."""

    def ring(*_: object) -> None:
        raise OutOfPatience

    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
