"""The rows of a split as what the search for leaks compares: their user texts, or
their plain texts."""

from collections.abc import Mapping, Sequence
from typing import overload

from hashtune.data.leakage import Item
from hashtune.data.table import Rows, Table
from hashtune.records import TEXT


class Items(Sequence[Item]):
    """Rows of a table, each read from disk when it is asked for; `files` maps source names to
    files."""

    def __init__(self, table: Table, rows: Rows, files: Mapping[str, str]) -> None:
        self._table, self._rows, self._files = table, rows, files

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> "Items": ...
    def __getitem__(self, place: int | slice) -> "Item | Items":
        if isinstance(place, slice):
            return Items(self._table, self._rows[place], self._files)
        row = self._table.conversation(self._rows[place])
        texts = [m["content"] for m in row.messages if m["role"] in ("user", TEXT)]
        return Item(self._files[row.source], row.line, texts)
