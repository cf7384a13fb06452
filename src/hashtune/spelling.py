"""Numbers of JSON that keep their spelling: 1e5, 1.10 and -0 are printed as they are written.

Python prints a number in a form of its own (100000.0, 1.1, 0), so tool arguments would change on
the way from the file to the trained text. A number whose own form is the written one stays a plain
int or float, which is nearly every one.
"""

import json
import re
from typing import Any

# half a character, which no JSON that is read may hold: around the spelling of a number
MARK = "\udc00"
_MARKED = re.compile(rf'"(?:{MARK}|\\udc00)([^"\\]*?)(?:{MARK}|\\udc00)"')


class WrittenInt(int):
    """A whole number that prints as written: -0."""

    written: str

    def __new__(cls, text: str) -> "WrittenInt":
        """The number that `text` spells; ValueError where it spells no whole number."""
        made = super().__new__(cls, text)
        made.written = text
        return made

    def __repr__(self) -> str:
        return self.written

    def __reduce__(self) -> tuple[type["WrittenInt"], tuple[str]]:
        return WrittenInt, (self.written,)

    def __format__(self, form: str) -> str:
        return format(int(self), form) if form else self.written


class WrittenFloat(float):
    """A number that prints as written: 1e5, 1.10."""

    written: str

    def __new__(cls, text: str) -> "WrittenFloat":
        """The nearest double of the number that `text` spells; ValueError where it spells none."""
        made = super().__new__(cls, text)
        made.written = text
        return made

    def __repr__(self) -> str:
        return self.written

    def __reduce__(self) -> tuple[type["WrittenFloat"], tuple[str]]:
        return WrittenFloat, (self.written,)

    def __format__(self, form: str) -> str:
        return format(float(self), form) if form else self.written


def read_int(text: str) -> int:
    """The whole number of a JSON text."""
    value = int(text)
    return WrittenInt(text) if text == "-0" else value


def read_float(text: str) -> float:
    """The number of a JSON text with a point or an exponent."""
    value = float(text)
    return value if repr(value) == text else WrittenFloat(text)


_DECODER = json.JSONDecoder(parse_int=read_int, parse_float=read_float)


def loads(text: str) -> Any:
    """Parse JSON of our own; numbers keep their spelling."""
    return _DECODER.decode(text)


def dumps(value: Any, **form: Any) -> str:
    """json.dumps, but numbers as they were written; json prints subclasses in its own form."""
    if not _holds_spelling(value):
        return json.dumps(value, **form)
    return _MARKED.sub(r"\1", json.dumps(_marked(value), **form))


def unspelled(value: Any) -> Any:
    """The value with plain numbers; the same object where it holds no others."""
    return _plain(value) if _holds_spelling(value) else value


def _holds_spelling(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_spelling, value.values()))
    if isinstance(value, list):
        return any(map(_holds_spelling, value))
    return isinstance(value, WrittenInt | WrittenFloat)


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    if isinstance(value, WrittenInt | WrittenFloat):
        return f"{MARK}{value.written}{MARK}"
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, WrittenInt):
        return int(value)
    return float(value) if isinstance(value, WrittenFloat) else value
