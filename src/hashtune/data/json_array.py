"""Read a declared JSON array of objects, element by element: the file is never held in memory.

Elements are told apart by counting brackets outside of texts; each one is then parsed as strictly
as a line of JSON lines, so that one broken element does not hide the next.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from hashtune.data.lines import (
    MAX_LINE_BYTES,
    WRITE_AGAIN,
    Fault,
    Log,
    ReadRow,
    encoding_fault,
    limit_in_words,
    starts_as_text,
)
from hashtune.data.messages import kind
from hashtune.strict_json import StrictJsonError, parse_strict

CHUNK = 1024 * 1024
SPACE = b" \t\r\n"
_STRUCTURE = re.compile(rb'["{}\[\],]')
_IN_TEXT = re.compile(rb'\\.|"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes up to a comma, to the array's end ("]") or to the end of the file ("")."""

    data: bytes  # empty when larger than the limit
    size: int
    line: int  # where it begins, 1-based
    offset: int
    end: str


def rows_of_array(path: Path, log: Log) -> Iterator[ReadRow]:
    """The sound rows one by one; findings and notes go to the log."""
    with path.open("rb") as handle:
        if not starts_as_text(handle, log, "json"):
            return
        opening, line, offset = _skip_space(handle)
        if opening != b"[":
            log.add(_no_array(opening), line)
            return
        for index, piece in enumerate(_pieces(handle, line, offset)):
            if index == 0 and piece.end == "]" and not piece.size:
                break  # []
            value = _parse(piece)
            if not isinstance(value, Fault):
                yield ReadRow(piece.line, value, index)
                continue
            log.add(value, piece.line, f"[{index}]")
            if piece.end == "":
                return
        _check_rest(handle, log)


def _no_array(opening: bytes) -> Fault:
    if opening == b"{":
        fix = "declare format: jsonl if there is one object per line"
        return Fault("not-json", "file starts with an object, expected an array of objects", fix)
    found = f"starts with {opening!r}"[:40] if opening else "is empty"
    return Fault("not-json", f"file {found}, expected a JSON array of objects")


def _skip_space(handle: BufferedReader) -> tuple[bytes, int, int]:
    """The first byte that is no space, its line, and where the byte after it is."""
    line = 1
    while (byte := handle.read(1)) and byte in SPACE:
        line += byte == b"\n"
    return byte, line, handle.tell()


def _pieces(handle: BufferedReader, line: int, offset: int) -> Iterator[_Piece]:
    """Cut what follows the opening bracket at the commas between elements; the handle is left
    behind the closing bracket. Memory: one element and two chunks."""
    buffer, at, depth, in_text = b"", 0, 0, False
    lost = lost_lines = 0  # of an element above the limit: what was let go
    while True:
        match = (_IN_TEXT if in_text else _STRUCTURE).search(buffer, at)
        if match is None:
            at = len(buffer) - (in_text and _ends_in_escape(buffer, at))
            if at > MAX_LINE_BYTES:
                lost, lost_lines = lost + at, lost_lines + buffer.count(b"\n", 0, at)
                buffer, at = buffer[at:], 0
            chunk = handle.read(CHUNK)
            if not chunk:
                yield _piece(buffer, lost, line, offset, "")
                return
            buffer += chunk
            continue
        mark, at = match[0], match.end()
        if in_text or mark == b'"':
            in_text = mark != b'"' if in_text else True
            continue
        depth += (mark in b"{[") - (mark in b"}]")
        if (mark == b"," and depth == 0) or depth < 0:
            yield _piece(buffer[: at - 1], lost, line, offset, mark.decode())
            if depth < 0:
                handle.seek(at - len(buffer), 1)
                return
            line += lost_lines + buffer.count(b"\n", 0, at)
            offset += lost + at
            buffer, at, lost, lost_lines = buffer[at:], 0, 0, 0


def _ends_in_escape(buffer: bytes, at: int) -> bool:
    """Whether the last byte is a backslash whose partner is not read yet."""
    return len(buffer) > at and buffer.endswith(b"\\")


def _piece(data: bytes, lost: int, line: int, offset: int, end: str) -> _Piece:
    """Without the space around it. After `lost` bytes the start of the element is gone."""
    if lost or len(data) > MAX_LINE_BYTES:
        return _Piece(b"", lost + len(data), line, offset, end)
    body = data.lstrip(SPACE)
    skipped = len(data) - len(body)
    line += data.count(b"\n", 0, skipped)
    body = body.rstrip(SPACE)
    return _Piece(body, len(body), line, offset + skipped, end)


def _parse(piece: _Piece) -> dict[str, Any] | Fault:
    fault = _piece_fault(piece)
    if fault:
        return fault
    try:
        text = piece.data.decode("utf-8")
        value = parse_strict(text)
    except UnicodeDecodeError as error:
        return encoding_fault(error, piece.data, offset=piece.offset, last=False)
    except StrictJsonError as error:
        return Fault(error.rule, _place_in(text, error))
    if isinstance(value, dict):
        return value
    return Fault("not-an-object", f"expected an array of objects, got {kind(value)} in it")


def _piece_fault(piece: _Piece) -> Fault | None:
    """What is wrong with an element before it is decoded."""
    if piece.size > len(piece.data):
        return Fault("line-too-long", f"element of {piece.size:,} bytes, {limit_in_words()}")
    if piece.end == "":
        message = "the array is not closed before the end of the file"
        return Fault("cut-off-line", message, WRITE_AGAIN)
    if not piece.data:
        return Fault("json", "trailing comma" if piece.end == "]" else "two commas in a row")
    if (nul := piece.data.find(0)) >= 0:
        return Fault("not-utf8", f"NUL byte at byte {piece.offset + nul}", "save the file as UTF-8")
    return None


def _place_in(text: str, error: StrictJsonError) -> str:
    """An element may have several lines: its own line and column of the fault."""
    before = text[: error.column - 1]
    column = error.column - (before.rfind("\n") + 1)
    below = before.count("\n")
    where = f"line {below + 1} of the element, column {column}" if below else f"column {column}"
    return f"{where}: {error.reason}"


def _check_rest(handle: BufferedReader, log: Log) -> None:
    """Nothing but space may follow the array."""
    while chunk := handle.read(CHUNK):
        if chunk.strip(SPACE):
            log.add(Fault("json", "extra data after the array"), None)
            return
