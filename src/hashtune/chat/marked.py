"""Messages with a mark behind every field: where a mark comes out, its own field was printed.

A text gets a mark inside its blanks, a number or a boolean gives way to a number that stands
nowhere else. Two equal fields have two marks, so one that is dropped is missed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.chat.messages import REASONING_FIELDS, parse_arguments
from hashtune.records import Message

DIGITS = 5  # of a field's number, behind the stem of digits


@dataclass(frozen=True, slots=True)
class Field:
    """A text, number or boolean that message `index` gives to the template."""

    index: int
    path: str
    value: Any

    @property
    def spellings(self) -> tuple[str, ...]:
        """As a text, in JSON and as Python prints it."""
        if not isinstance(self.value, str):
            return tuple(dict.fromkeys((json.dumps(self.value), str(self.value))))
        core = self.value.strip()
        plain, ascii_only = json.dumps(core, ensure_ascii=False)[1:-1], json.dumps(core)[1:-1]
        return tuple(dict.fromkeys((core, plain, ascii_only, repr(core)[1:-1])))


class Marks:
    """Writes marks into messages and finds them in a render."""

    def __init__(self, messages: Sequence[Message]) -> None:
        written = repr(messages).lower()
        self._stem, self._digits = "zqf", "86753091"
        while self._stem in written:
            self._stem += "q"
        while self._digits in written:
            self._digits += "1"
        self._pattern = re.compile(
            rf"{self._stem}([0-9]+)z|{self._digits}([0-9]{{{DIGITS}}})(?:\.5)?", re.IGNORECASE
        )
        self.fields: list[Field] = []
        self.messages = [self._message(index, message) for index, message in enumerate(messages)]

    def read(self, text: str, spelling: int) -> tuple[str, list[tuple[int, int]]]:
        """The text without marks, and (number of the field, where it ends) for each of them.

        Args:
            text: a render of the marked messages.
            spelling: which spelling stands for a number: 0 JSON's, -1 Python's.
        """
        pieces: list[str] = []
        places = []
        read = length = 0
        for match in self._pattern.finditer(text):
            number = int(match[1] or match[2])
            pieces.append(text[read : match.start()])
            if match[2]:
                pieces.append(self.fields[number].spellings[spelling])
            length += sum(map(len, pieces[-1 - bool(match[2]) :]))
            places.append((number, length))
            read = match.end()
        return "".join([*pieces, text[read:]]), places

    def broken(self, text: str) -> set[int]:
        """Numbers of the fields whose mark comes out with blanks inside (`wordwrap`)."""
        return {int(m[1] or m[2]) for m in self._pattern.finditer("".join(text.split()))}

    def _message(self, index: int, message: Message) -> Message:
        marked = {**message}
        if isinstance(marked.get("content"), str):
            marked["content"] = self._value(index, "content", marked["content"])
        reasoning = [name for name in REASONING_FIELDS if message.get(name)]
        for name in reasoning[:1]:  # a template may print any of them: all hold the first
            text = self._value(index, name, message[name])
            marked |= {other: text for other in reasoning if message[other] == message[name]}
        if calls := message.get("tool_calls"):
            marked["tool_calls"] = [
                self._call(index, f"tool_calls[{number}]", call)
                for number, call in enumerate(calls)
            ]
        return marked

    def _call(self, index: int, path: str, call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function", call)
        changed = {
            **function,
            "name": self._text(index, f"{path}.name", function["name"]),
            "arguments": self._value(
                index, f"{path}.arguments", parse_arguments(function.get("arguments"))
            ),
        }
        return {**call, "function": changed} if "function" in call else changed

    def _value(self, index: int, path: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                self._text(index, f"{path}.{key}", key): self._value(index, f"{path}.{key}", item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(index, f"{path}[{n}]", item) for n, item in enumerate(value)]
        if isinstance(value, str):
            return self._text(index, path, value)
        if value is None:
            return None
        number = int(f"{self._digits}{self._add(index, path, value):0{DIGITS}}")
        return number + 0.5 if isinstance(value, float) else number

    def _text(self, index: int, path: str, value: str) -> str:
        core = value.rstrip()
        if not core:
            return value
        return f"{core}{self._stem}{self._add(index, path, value)}z{value[len(core) :]}"

    def _add(self, index: int, path: str, value: Any) -> int:
        self.fields.append(Field(index, path, value))
        return len(self.fields) - 1


def short_of(fields: Sequence[Field], text: str) -> Iterator[Field]:
    """The fields that a text does not hold once for each of them, blanks aside.

    The longest are looked for first and taken out, so that a text inside another does not count.
    """
    left = "".join(text.split())
    for field in sorted(fields, key=lambda field: -len(str(field.value))):
        squeezed = ("".join(spelling.split()) for spelling in field.spellings)
        found = next((spelling for spelling in squeezed if spelling in left), None)
        if found is None:
            yield field
        else:
            left = left.replace(found, "\0", 1)
