"""Parse one line of JSON strictly: what Python's json lets through or reports badly is refused.

Refused, with the 1-based column in characters: broken JSON, NaN and Infinity, numbers that do not
fit a double, lone surrogates (Python fails on them only when it writes), keys given twice (Python
keeps the last), nesting above 100 levels (Python's recursion limit). The C parser reads every
line; the slow scan in Python runs only on lines that may hold such a fault.
"""

import json
import math
import re
from typing import Any, NoReturn

from hashtune.spelling import read_float, read_int

MAX_DEPTH = 100
MAX_INT_DIGITS = 4000  # int() refuses more than 4300 digits

_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*', re.DOTALL
)
_COLON = re.compile(r"[ \t\n\r]*:")
_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictJsonError(ValueError):
    """A refused line: `rule` for counting, `reason` in words, `column` 1-based in characters."""

    def __init__(self, rule: str, reason: str, column: int) -> None:
        super().__init__(f"column {column}: {reason}")
        self.rule = rule
        self.reason = reason
        self.column = column


class _HookError(Exception):
    """Raised inside the C parser, which does not tell its hooks where they are."""


def parse_strict(text: str) -> Any:
    """The value of a JSON text, values as written, numbers with their spelling; StrictJsonError
    for anything else."""
    if _may_hide_a_fault(text) and (fault := _first_fault(text)):
        raise fault
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise StrictJsonError("json", _reason(error, text), error.pos + 1) from error
    except _HookError as error:
        fault = _first_fault(text)
        if fault is None:  # the scan and the hooks disagree: ours, not the user's
            raise AssertionError(f"no fault found in {text[:80]!r}") from error
        raise fault from None


def _may_hide_a_fault(text: str) -> bool:
    deep = text.count("[") + text.count("{") > MAX_DEPTH
    return deep or "\\ud" in text or "\\uD" in text


def _reason(error: json.JSONDecodeError, text: str) -> str:
    found = text[error.pos : error.pos + 1]
    if found == "\ufeff":
        return "byte order mark (U+FEFF) between two values"
    if found == "'":
        return "single quote; JSON strings stand in double quotes"
    if found in {"}", "]"} and text[: error.pos].rstrip().endswith(","):
        return "trailing comma"
    return f"{error.msg[0].lower()}{error.msg[1:]}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _HookError
    return value


def _refuse(_: str) -> NoReturn:
    raise _HookError


def _float(text: str) -> float:
    value = read_float(text)
    if math.isinf(value):
        raise _HookError
    return value


def _int(text: str) -> int:
    if len(text) > MAX_INT_DIGITS:
        raise _HookError
    return read_int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_float, parse_int=_int
)


def _first_fault(text: str) -> StrictJsonError | None:
    """Walk the tokens; the text before the first fault is well-formed JSON."""
    open_keys: list[set[str] | None] = []  # the keys seen in each open object, None for an array
    for match in _TOKEN.finditer(text):
        token, column = match[0], match.start() + 1
        if token in "{[":
            open_keys.append(set() if token == "{" else None)
            if len(open_keys) > MAX_DEPTH:
                reason = f"nested deeper than {MAX_DEPTH} levels"
                return StrictJsonError("nesting", reason, column)
        elif token in "}]":
            if open_keys:
                open_keys.pop()
        elif token[0] == '"':
            keys = open_keys[-1] if open_keys and _COLON.match(text, match.end()) else None
            if fault := _string_fault(token, keys, column):
                return fault
        elif fault := _number_fault(token, column):
            return fault
    return None


def _string_fault(token: str, keys: set[str] | None, column: int) -> StrictJsonError | None:
    """`keys` are the earlier keys of the object when this string is a key; it joins them."""
    try:
        value = json.loads(token)
    except json.JSONDecodeError:  # a control character or a bad escape: the parser names it
        return None
    if lone := _SURROGATE.search(value):
        reason = f"lone surrogate U+{ord(lone[0]):04X}, half of a character"
        return StrictJsonError("lone-surrogate", reason, column)
    if keys is not None:
        if value in keys:
            return StrictJsonError("duplicate-key", f"key {value!r} given twice", column)
        keys.add(value)
    return None


def _number_fault(token: str, column: int) -> StrictJsonError | None:
    if token.lstrip("-") in {"NaN", "Infinity"}:
        return StrictJsonError("not-a-number", f"{token} is no JSON value", column)
    whole = token.lstrip("-").isdigit()
    if len(token) > MAX_INT_DIGITS if whole else _overflows(token):
        return StrictJsonError("number-range", "number out of range", column)
    return None


def _overflows(token: str) -> bool:
    try:
        return math.isinf(float(token))
    except ValueError:  # no number at all: the parser names it
        return False
