"""What all kinds of rule share: their shape, what their values may be, and how a text is read.

No kind takes a regular expression: a pattern of a user could run for hours on one answer, and says
less to a reader than a named kind. Our own patterns start only where a run starts, so each is
linear in the answer.
"""

import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_STRAIGHT = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        **dict.fromkeys("\u200b\u2060\ufeff", None),  # zero width: seen by no reader
    }
)


@dataclass(frozen=True)
class Kind:
    """One kind of rule: what its value must be, and the check of an answer against it."""

    wants: str
    accepts: Callable[[object], bool]
    holds: Callable[[Any, str], bool]


def clean(text: str) -> str:
    """The text in NFC, quotes straightened, without zero-width characters and outer blanks."""
    return unicodedata.normalize("NFC", text).translate(_STRAIGHT).strip()


def find_phrase(phrase: str, text: str, start: int = 0) -> re.Match[str] | None:
    """The first place at or after `start` where the phrase stands in whole words, any case."""
    pattern = rf"(?<!\w){re.escape(clean(phrase))}(?!\w)"
    return re.compile(pattern, re.IGNORECASE).search(text, start)


def starts_with(value: str, text: str) -> bool:
    """Whether the text begins with the value, and its last word is whole."""
    return re.match(rf"{re.escape(clean(value))}(?!\w)", text, re.IGNORECASE) is not None


def words_of(text: str) -> list[str]:
    """Blank-separated runs that hold a letter or digit."""
    return [word for word in text.split() if any(char.isalnum() for char in word)]


def lines_of(text: str) -> list[str]:
    """Lines that are not blank, without outer blanks."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def unfenced(text: str) -> str:
    """The content of a code fence around the whole text, else the text as it is."""
    lines = text.splitlines()
    whole = len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```"
    inner = lines[1:-1]
    if not whole or any(line.startswith("```") for line in inner):
        return text
    return "\n".join(inner).strip()


def is_count(value: object) -> bool:
    """A whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_number(value: object) -> bool:
    """A number that a double holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # math.isfinite fails at a longer int


def is_text(value: object) -> bool:
    """A text that is not blank."""
    return isinstance(value, str) and bool(clean(value))


def is_texts(value: object) -> bool:
    """A list of texts, none blank."""
    return isinstance(value, list) and bool(value) and all(is_text(text) for text in value)


def has_exactly(value: object, **fields: Callable[[object], bool]) -> bool:
    """A mapping with these keys and no other, each value accepted by its check."""
    if not isinstance(value, dict) or set(value) != set(fields):
        return False
    return all(accepts(value[key]) for key, accepts in fields.items())


FLAG = ("left out", lambda value: value is None)
COUNT = ("a positive whole number", is_count)
NUMBER = ("a number", is_number)
TEXT = ("a text that is not blank", is_text)
TEXTS = ("a list of texts, none blank", is_texts)
