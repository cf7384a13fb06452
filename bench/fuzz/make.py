"""Which file a number stands for."""

from collections.abc import Callable
from random import Random

from fuzz.case import Case
from fuzz.tables import parquet, parquet_messages, table
from fuzz.talks import talks
from fuzz.text import array, jsonl, long_line


def case_of(seed: int, number: int) -> Case:
    """The file with this number; independent of all others."""
    return _make(Random(f"{seed}/{number}"))


def _make(random: Random) -> Case:
    """A random file; the seed of `random` alone decides which."""
    makers: list[Callable[[Random], Case]] = (
        [jsonl] * 5 + [talks] * 5 + [array] * 2 + [table] * 2 + [parquet, parquet_messages]
    )
    if random.random() < 0.001:
        return long_line(random)
    return random.choice(makers)(random)


def short(value: object) -> str:
    """The start of a value, for a failure."""
    return repr(value)[:300]
