"""Lists of token ids as flat int32 bytes: how they go into Arrow columns and are counted.

struct packs a list of Python's integers in less than half the time of numpy, array or Arrow.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def packed(rows: Iterable[Sequence[int]]) -> bytes:
    """The values of all rows, one after another, as native int32."""
    return b"".join(struct.pack(f"{len(row)}i", *row) for row in rows)


def token_column(rows: Sequence[Sequence[int]]) -> "pa.ListArray":
    """A column of lists of int32."""
    import pyarrow as pa

    bounds = list(accumulate(map(len, rows), initial=0))
    values = pa.Array.from_buffers(pa.int32(), bounds[-1], [None, pa.py_buffer(packed(rows))])
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)
