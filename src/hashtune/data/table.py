"""All rows of all files: 43 bytes of each in memory (59 while exact duplicates are looked for), its
messages on disk.

What is decided about rows is decided on columns; messages are read again one row at a time. A row
has a number, given in the order in which rows are read, and it is kept until it is dropped.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashtune import spelling
from hashtune.data.schemas import as_row
from hashtune.data.spill import Spill
from hashtune.records import Conversation, Dropped

Rows = NDArray[np.int32]  # row numbers
HASH_BYTES = 8
KEY_BYTES = 16
RECORD = Struct("<QQQqqHB")  # one buffer grows with less waste than a buffer a column
NO_GROUP = 0
NO_TEXT = -1


class Columns(NamedTuple):
    """One value a row; shape (rows,) each."""

    id: NDArray[np.uint64]  # the 16 hex digits as a number
    rank: NDArray[np.uint64]  # hash of the id
    group: NDArray[np.uint64]  # hash of the group, NO_GROUP for none
    line: NDArray[np.int64]
    text: NDArray[np.int64]  # where the messages lie; of a dropped row, why it was dropped
    source: NDArray[np.uint16]  # index into Table.names
    reason: NDArray[np.uint8]  # index into Table.reasons; 0 is kept


class Chosen(NamedTuple):
    """The rows of a split in their order; times[i]: how often rows[i]'s id has occurred by then."""

    rows: Rows
    times: NDArray[np.int32]


def hash64(text: str) -> int:
    """The first 8 bytes of the sha256 of a text as a number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:HASH_BYTES], "big")


def group_key(group: str) -> str:
    """What makes two groups one: all but blanks around them and the form of their Unicode."""
    return unicodedata.normalize("NFC", group).strip()


def nothing() -> Chosen:
    """A split without rows."""
    return Chosen(np.empty(0, np.int32), np.empty(0, np.int32))


class Table:
    """Rows are added first; once `columns` was read, none can be added."""

    def __init__(self, spill: Spill) -> None:
        self.names: list[str] = []
        self.reasons: list[str] = [""]
        self._spill = spill
        self._records = bytearray()
        self._keys = bytearray()

    def __len__(self) -> int:
        return len(self._records) // RECORD.size

    def add(self, row: Conversation, key: bytes = bytes(KEY_BYTES)) -> None:
        """A sound row, with the hash by which duplicates are known."""
        group = NO_GROUP if row.group is None else hash64(group_key(row.group))
        text = f"{json.dumps(row.group)}\n{as_row(row)['messages']}"
        self._append(row, group, self._spill.put(text), 0, key)

    def add_dropped(self, row: Dropped) -> None:
        """A row that was dropped before it was compared with others."""
        text = self._spill.put(row.detail)
        self._append(row, NO_GROUP, text, self._reason(row.reason), bytes(KEY_BYTES))

    def _append(
        self, row: Conversation | Dropped, group: int, text: int, reason: int, key: bytes
    ) -> None:
        if row.source not in self.names:
            self.names.append(row.source)
        number, source = int(row.id, 16), self.names.index(row.source)
        self._records += RECORD.pack(number, hash64(row.id), group, row.line, text, source, reason)
        self._keys += key

    def _reason(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason)

    @cached_property
    def columns(self) -> Columns:
        """The columns, without a copy."""
        formats = [code for code in RECORD.format if code.isalpha()]
        record = np.dtype({"names": list(Columns._fields), "formats": [f"<{f}" for f in formats]})
        records = np.frombuffer(self._records, record)
        return Columns(*(records[name] for name in Columns._fields))

    def take_keys(self) -> NDArray[np.uint64]:
        """The hashes given to `add` as two numbers each, (rows, 2); they are forgotten."""
        keys, self._keys = self._keys, bytearray()
        return np.frombuffer(keys, "<u8").reshape(-1, 2)

    def dropped(self, source: str | None = None) -> dict[str, int]:
        """How many rows were dropped, in all or of one source, by reason."""
        reasons = self.columns.reason
        if source is not None:
            number = self.names.index(source) if source in self.names else len(self.names)
            reasons = reasons[self.columns.source == number]
        counts = np.bincount(reasons, minlength=len(self.reasons))
        named = zip(self.reasons[1:], counts[1:], strict=True)
        return {reason: int(count) for reason, count in sorted(named) if count}

    def kept(self) -> Rows:
        """The rows that were not dropped."""
        return np.flatnonzero(self.columns.reason == 0).astype(np.int32)

    def of(self, rows: Rows, *sources: str) -> Rows:
        """Those of these sources."""
        return rows[self._is_of(rows, sources)]

    def not_of(self, rows: Rows, *sources: str) -> Rows:
        """Those of other sources."""
        return rows[~self._is_of(rows, sources)]

    def _is_of(self, rows: Rows, sources: Sequence[str]) -> NDArray[np.bool_]:
        numbers = [number for number, name in enumerate(self.names) if name in sources]
        return np.isin(self.columns.source[rows], np.array(numbers, np.uint16))

    def drop(self, rows: Rows | int, reason: str, detail: str = "") -> None:
        """Put rows into the ledger; each leaves its messages."""
        self.columns.text[rows] = self._spill.put(detail) if detail else NO_TEXT
        self.columns.reason[rows] = self._reason(reason)

    def id(self, row: int, times: int = 1) -> str:
        """The row's id, "<id>#2" for the second with this id."""
        text = f"{int(self.columns.id[row]):016x}"
        return text if times == 1 else f"{text}#{times}"

    def source(self, row: int) -> str:
        """The name of the row's source."""
        return self.names[int(self.columns.source[row])]

    def line(self, row: int) -> int:
        """The row's line in its file."""
        return int(self.columns.line[row])

    def written(self, row: int, times: int = 1) -> dict[str, Any]:
        """The row as it stands in build/prepare/*.parquet (schemas.as_row)."""
        group, messages = self._spill.get(int(self.columns.text[row])).split("\n", 1)
        return {
            "id": self.id(row, times),
            "source": self.source(row),
            "line": self.line(row),
            "group": json.loads(group),
            "messages": messages,
        }

    def conversation(self, row: int, times: int = 1) -> Conversation:
        """The row with its messages."""
        written = self.written(row, times)
        return Conversation(**{**written, "messages": spelling.loads(written["messages"])})

    def in_order(self, *keys: NDArray[Any], rows: Rows, last: NDArray[Any] | None = None) -> Rows:
        """The rows sorted by the keys, then by source name and line, then by `last`; a key has one
        value for each of the rows."""
        source = _alphabetic(self.names)[self.columns.source[rows]]
        end = [] if last is None else [last]
        return rows[np.lexsort((*end, self.columns.line[rows], source, *reversed(keys)))]

    def ledger(self) -> Iterator[Dropped]:
        """The dropped rows by source name, line and reason."""
        dropped = np.flatnonzero(self.columns.reason).astype(np.int32)
        reasons = _alphabetic(self.reasons)[self.columns.reason[dropped]]
        for row in map(int, self.in_order(rows=dropped, last=reasons)):
            place = int(self.columns.text[row])
            detail = self._spill.get(place) if place != NO_TEXT else ""
            reason = self.reasons[int(self.columns.reason[row])]
            yield Dropped(self.id(row), self.source(row), self.line(row), reason, detail)


def _alphabetic(names: list[str]) -> NDArray[np.uint16]:
    """The place of each name among the sorted names."""
    places = {name: place for place, name in enumerate(sorted(names))}
    return np.array([places[name] for name in names], np.uint16)
