"""Split by content hash: where a conversation goes depends on itself alone.

So rows can be added, removed or moved without moving the others, and rows that share a `group`
(one customer, one document) stay on one side.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashtune.data.table import NO_GROUP, Rows, Table
from hashtune.errors import Finding

FRACTION_BITS = 52  # every value is exact in a double


class Split(NamedTuple):
    """Rows by split, each in input order."""

    train: Rows
    eval: Rows
    test: Rows


def fraction(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Where hashes of 64 bits lie in [0, 1), read as binary fractions."""
    places: NDArray[np.float64] = (hashes >> np.uint64(64 - FRACTION_BITS)) / 2.0**FRACTION_BITS
    return places


def split(table: Table, rows: Rows, *, eval_fraction: float, test_fraction: float) -> Split:
    """Test takes [0, test_fraction), eval takes [1 - eval_fraction, 1), train the rest; a row lies
    where its group does, or its id if it has none.

    From both ends, so that changing one fraction moves no row between train and the other split.
    """
    groups = table.columns.group[rows]
    places = fraction(np.where(groups == NO_GROUP, table.columns.rank[rows], groups))
    in_test = places < test_fraction
    in_eval = ~in_test & (places >= 1.0 - eval_fraction)
    return Split(rows[~in_test & ~in_eval], rows[in_eval], rows[in_test])


def take_first(table: Table, rows: Rows, limit: int | None) -> tuple[Rows, Rows]:
    """The `limit` first rows in the order of the hash of their id, which is independent of the
    input order, and the others; all of them for None."""
    ordered = table.in_order(table.columns.rank[rows], rows=rows)
    count = len(ordered) if limit is None else limit
    return ordered[:count], ordered[count:]


def check_fractions(*, eval_fraction: float, test_fraction: float) -> list[Finding]:
    """A finding when nothing would be left for train."""
    if eval_fraction + test_fraction < 1.0:
        return []
    message = f"{eval_fraction:g} and data.test.fraction {test_fraction:g} leave nothing for train"
    return [Finding("fractions", message, field="data.eval.fraction")]
