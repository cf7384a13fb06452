"""The rows of a split as what the search for leaks compares: their user texts (or plain texts),
every other text by its kind, and the last answer with its
reasoning."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from hashtune.data.json_texts import texts
from hashtune.data.leak_index import Item
from hashtune.data.table import Rows, Table
from hashtune.records import REASONING, TEXT, Message
from hashtune.strict_json import StrictJsonError, parse_strict


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
        questions = [m["content"] for m in row.messages if m["role"] in ("user", TEXT)]
        others = [pair for message in row.messages for pair in _others(message)]
        last = row.messages[-1]
        answers = [last[field] for field in ("content", *REASONING) if _is_answer(last, field)]
        return Item(self._files[row.source], row.line, questions, others, answers)


def _is_answer(message: Message, field: str) -> bool:
    text = message.get(field)
    return message["role"] == "assistant" and isinstance(text, str) and bool(text)


def _others(message: Message) -> Iterator[tuple[str, str]]:
    """(kind, text) of what no user says: the role's texts, and the arguments of each tool call as
    one text."""
    for field in ("content", *REASONING):
        if isinstance(message.get(field), str) and message["role"] not in ("user", TEXT):
            yield message["role"], message[field]
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if found := " ".join(text for _, text in texts(_parsed(arguments), "")):
            yield "arguments", found


def _parsed(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        return parse_strict(arguments)
    except StrictJsonError:  # tokenize refuses it
        return arguments
