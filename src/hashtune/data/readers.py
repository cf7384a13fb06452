"""Read JSON lines byte by byte: UTF-8 whatever the locale, split at \\n only, one object per line.

Values stay as written: a text that looks like a date stays a text, U+2028 stays inside its string.
All findings of a file come in one run. A line is held in memory, the file is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hashtune.data.lines import (
    MAX_LINE_BYTES,
    WRITE_AGAIN,
    Fault,
    Line,
    Log,
    ReadRow,
    decode,
    lines,
    note_blank,
    starts_as_text,
)
from hashtune.data.messages import kind
from hashtune.strict_json import StrictJsonError, parse_strict

__all__ = ["MAX_LINE_BYTES", "Reading", "read_jsonl", "rows_of_jsonl"]

ONE_PER_LINE = "write one JSON object per line (jq -c '.[]' for an array, jq -c . for an object)"
DECLARE = "declare format: json, or write one object per line (jq -c '.[]')"
_ARRAY = Fault("array", "file is a JSON array, expected one object per line", DECLARE)


@dataclass(slots=True)
class Reading(Log):
    """A whole file: also its (1-based line, object) pairs."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def read_jsonl(path: Path, *, shown: str) -> Reading:
    """Read a JSON-lines file; `shown` is the path as the user wrote it, for the findings."""
    reading = Reading(shown)
    reading.rows = [(row.line, row.value) for row in rows_of_jsonl(path, reading)]
    return reading


def rows_of_jsonl(path: Path, log: Log) -> Iterator[ReadRow]:
    """The sound rows one by one; findings and notes go to the log."""
    blank = first_blank = 0
    first = True
    with path.open("rb") as handle:
        if not starts_as_text(handle, log, "jsonl"):
            return
        for line in lines(handle):
            if line.is_blank:
                blank += 1
                first_blank = first_blank or line.number
                continue
            value = _parse(line, first=first)
            first = False
            if not isinstance(value, Fault):
                yield ReadRow(line.number, value)
                continue
            log.add(value, line.number)
            if value.ends_file:
                return
    note_blank(blank, first_blank, log)


def _parse(line: Line, *, first: bool) -> dict[str, Any] | Fault:
    text = decode(line)
    if isinstance(text, Fault):
        return text
    try:
        value = parse_strict(text)
    except StrictJsonError as error:
        return _json_fault(error, text, last=line.last, first=first)
    if isinstance(value, dict):
        return value
    if first and isinstance(value, list):
        return _ARRAY
    message = f"expected one JSON object per line, got {kind(value)}"
    return Fault("not-an-object", message, ONE_PER_LINE)


def _json_fault(error: StrictJsonError, text: str, *, last: bool, first: bool) -> Fault:
    body = text.strip(" \t\r\n")
    if first and body.startswith("["):  # an array over several lines
        return replace(_ARRAY, ends_file=True)
    if first and body == "{" and not last:
        message = "one JSON object is spread over several lines"
        return Fault("json", message, ONE_PER_LINE, ends_file=True)
    if last and is_cut_off(error, body):
        return Fault("cut-off-line", f"the last line is cut off ({error})", WRITE_AGAIN)
    return Fault(error.rule, str(error), _fix(error, text))


def _fix(error: StrictJsonError, text: str) -> str | None:
    """What to do about values that follow each other in one line."""
    if not error.reason.startswith("extra data"):
        return None
    if text[: error.column - 1].endswith("\r"):
        return "end lines with \\n (tr '\\r' '\\n'); a carriage return ends none"
    return ONE_PER_LINE


def is_cut_off(error: StrictJsonError, body: str) -> bool:
    """Whether a broken object looks as if its writer had stopped early."""
    if error.rule != "json" or not body.startswith("{") or error.reason.startswith("extra data"):
        return False
    unfinished = error.column > len(body) or not body.endswith("}")
    return unfinished or error.reason.startswith("unterminated")
