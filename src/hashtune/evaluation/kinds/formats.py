"""Kinds of rule about the form of an answer: letter case, lists, JSON, CSV, tables, quotes.

A code fence around the whole answer is taken off where data is parsed (JSON, CSV): who asks for
JSON gets it in a fence from many models, and it is the JSON that counts.
"""

import csv
import json
import re
from typing import Any

from hashtune.evaluation.kinds.base import (
    COUNT,
    FLAG,
    TEXTS,
    Kind,
    has_exactly,
    is_count,
    is_text,
    is_texts,
    lines_of,
    starts_with,
    unfenced,
    words_of,
)

_BULLET = re.compile(r"[-*\u2022]\s+\S")
_NUMBERED = re.compile(r"(\d{1,4})[.)]\s+\S")
_TABLE_RULE = re.compile(r"[\s|:-]+")
_NOTHING = object()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def parsed(text: str) -> Any:
    """The JSON value of the answer, or an object equal to nothing when it is no JSON (as NaN)."""
    try:
        return json.loads(unfenced(text), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # RecursionError: thousands of open brackets
        return _NOTHING


def _capitalised(_: object, text: str) -> bool:
    letters = [next((c for c in word if c.isalpha()), "") for word in words_of(text)]
    cased = [letter for letter in letters if letter.lower() != letter.upper()]
    return bool(cased) and all(letter == letter.upper() for letter in cased)


def _json_object(value: list[str] | None, text: str) -> bool:
    found = parsed(text)
    return isinstance(found, dict) and all(key in found for key in value or ())


def _json_array(value: int | None, text: str) -> bool:
    found = parsed(text)
    return isinstance(found, list) and value in (None, len(found))


def _json_values(value: dict[str, Any], text: str) -> bool:
    found = parsed(text)
    return isinstance(found, dict) and all(
        key in found and _same(found[key], wanted) for key, wanted in value.items()
    )


def _same(found: object, wanted: object) -> bool:
    """Equal; texts without case; true is not 1."""
    if isinstance(found, str) and isinstance(wanted, str):
        return found.strip().casefold() == wanted.strip().casefold()
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def _csv_columns(value: int, text: str) -> bool:
    lines = lines_of(unfenced(text))
    try:
        rows = list(csv.reader(lines, skipinitialspace=True, strict=True))
    except csv.Error:
        return False
    return bool(rows) and all(
        len(row) == value and all(field.strip() for field in row) for row in rows
    )


def _table_columns(value: int, text: str) -> bool:
    """A Markdown table: header, rule of dashes, at least one row, all of `value` cells."""
    lines = lines_of(text)
    if len(lines) < 3 or "-" not in lines[1] or not _TABLE_RULE.fullmatch(lines[1]):
        return False
    rows = [line.strip("|").split("|") for line in lines]
    return all("|" in line for line in lines) and all(len(row) == value for row in rows)


def _bullets(value: int, text: str) -> bool:
    return sum(_BULLET.match(line) is not None for line in lines_of(text)) == value


def _numbered(value: int, text: str) -> bool:
    found = [_NUMBERED.match(line) for line in lines_of(text)]
    return [int(match[1]) for match in found if match] == list(range(1, value + 1))


def _separated(value: dict[str, Any], text: str) -> bool:
    parts = text.split(value["by"])
    one_line = len(text.splitlines()) == 1
    return one_line and len(parts) == value["count"] and all(map(words_of, parts))


def _quoted(_: object, text: str) -> bool:
    inner = text[1:-1]
    return len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner and bool(inner.strip())


def _key_lines(value: list[str], text: str) -> bool:
    """Exactly one line "key: something" per key, in this order."""
    pairs = [line.partition(":") for line in lines_of(text)]
    keys = [key.strip(" *-").casefold() for key, _, _ in pairs]
    told = all(rest.strip(" *") for _, _, rest in pairs)
    return told and keys == [key.strip().casefold() for key in value]


def _code_block(_: object, text: str) -> bool:
    return sum(line.lstrip().startswith("```") for line in text.splitlines()) >= 2


def _is_values(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_scalar, value.values()))


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _is_separated(value: object) -> bool:
    return has_exactly(value, by=is_text, count=is_count)


_KEYS = ("left out or a list of keys", lambda value: value is None or is_texts(value))
_LENGTH = ("left out or a positive whole number", lambda value: value is None or is_count(value))
_VALUES = ("an object of keys with their values, none nested", _is_values)
_PARTS = ('{"by": a text, "count": a positive whole number}', _is_separated)

KINDS: dict[str, Kind] = {
    "lowercase": Kind(*FLAG, lambda _, text: text.islower()),
    "uppercase": Kind(*FLAG, lambda _, text: text.isupper()),
    "capitalised": Kind(*FLAG, _capitalised),
    "yes_no": Kind(*FLAG, lambda _, text: starts_with("yes", text) or starts_with("no", text)),
    "json_object": Kind(*_KEYS, _json_object),
    "json_array": Kind(*_LENGTH, _json_array),
    "json_values": Kind(*_VALUES, _json_values),
    "csv_columns": Kind(*COUNT, _csv_columns),
    "table_columns": Kind(*COUNT, _table_columns),
    "bullets": Kind(*COUNT, _bullets),
    "numbered": Kind(*COUNT, _numbered),
    "separated": Kind(*_PARTS, _separated),
    "quoted": Kind(*FLAG, _quoted),
    "key_lines": Kind(*TEXTS, _key_lines),
    "code_block": Kind(*FLAG, _code_block),
}
