"""Read JSON lines byte by byte: UTF-8 whatever the locale, split at \\n only, one object per line.

Values stay as written: a text that looks like a date stays a text, U+2028 stays inside its string.
All findings of a file come in one run. A line is held in memory, the file is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from hashtune.data.messages import kind
from hashtune.data.strict_json import StrictJsonError, parse_strict
from hashtune.errors import Finding

MAX_LINE_BYTES = 16 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
FOREIGN_STARTS = {  # longest first: UTF-32 LE starts like UTF-16 LE
    b"\xff\xfe\x00\x00": "UTF-32 (little-endian byte order mark FF FE 00 00)",
    b"\x00\x00\xfe\xff": "UTF-32 (big-endian byte order mark 00 00 FE FF)",
    b"\xff\xfe": "UTF-16 (little-endian byte order mark FF FE)",
    b"\xfe\xff": "UTF-16 (big-endian byte order mark FE FF)",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
}
WRITE_AGAIN = "write the file again; its writer stopped early"
ONE_PER_LINE = "write one JSON object per line (jq -c '.[]' for an array, jq -c . for an object)"


@dataclass(slots=True)
class Reading:
    """What a file held: (1-based line, object) pairs, what is wrong, and what was let pass."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    offset: int  # of its first byte in the file
    size: int  # in bytes; larger than data for a line above the limit
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class _Fault:
    """A finding without its place; `ends_file`: the file as a whole is something else."""

    rule: str
    message: str
    fix: str | None = None
    ends_file: bool = False


_ARRAY = _Fault("array", "file is a JSON array, expected one object per line", ONE_PER_LINE)


class _StopReadingError(Exception):
    """Further lines would only repeat the finding that is in the reading."""


def read_jsonl(path: Path, *, shown: str) -> Reading:
    """Read a JSON-lines file; `shown` is the path as the user wrote it, for the findings."""
    reading = Reading()
    blank: list[int] = []
    with path.open("rb") as handle:
        start = handle.peek(4)[:4]
        for magic, name in FOREIGN_STARTS.items():
            if start.startswith(magic):
                message = f"is {name}, expected UTF-8 text with one JSON object per line"
                reading.findings.append(Finding("not-jsonl", message, file=shown, line=1))
                return reading
        if start.startswith(BOM):
            handle.read(len(BOM))
            reading.notes.append("byte order mark at the start removed")
        try:
            for line in _lines(handle):
                if line.size == len(line.data) and not line.data.strip(b" \t\r\n"):
                    blank.append(line.number)
                else:
                    _read_line(line, reading, shown=shown)
        except _StopReadingError:
            return reading
    if blank:
        reading.notes.append(f"{len(blank)} blank lines skipped, the first is line {blank[0]}")
    return reading


def _lines(handle: BufferedReader) -> Iterator[_Line]:
    """Lines ending at \\n; of a line above the limit only the size is known."""
    number = 0
    offset = handle.tell()
    while data := handle.readline(MAX_LINE_BYTES + 1):
        number += 1
        size = len(data)
        if size > MAX_LINE_BYTES and not data.endswith(b"\n"):
            rest = data
            while rest and not rest.endswith(b"\n"):
                rest = handle.readline(MAX_LINE_BYTES)
                size += len(rest)
            data = b""
        yield _Line(number, offset, size, data, last=not handle.peek(1))
        offset += size


def _read_line(line: _Line, reading: Reading, *, shown: str) -> None:
    fault = _bytes_fault(line)
    first = not reading.rows and not reading.findings
    if fault is None:
        try:
            value = parse_strict(line.data.decode("utf-8"))
        except UnicodeDecodeError as error:
            fault = _encoding_fault(error, line)
        except StrictJsonError as error:
            fault = _json_fault(error, line, first=first)
        else:
            if isinstance(value, dict):
                reading.rows.append((line.number, value))
                return
            message = f"expected one JSON object per line, got {kind(value)}"
            fault = _Fault("not-an-object", message, ONE_PER_LINE)
            if first and isinstance(value, list):
                fault = _ARRAY
    reading.findings.append(
        Finding(fault.rule, fault.message, file=shown, line=line.number, fix=fault.fix)
    )
    if fault.ends_file:
        raise _StopReadingError


def _bytes_fault(line: _Line) -> _Fault | None:
    """What is wrong with the line before it is decoded."""
    if line.size != len(line.data):
        limit = f"the limit is {MAX_LINE_BYTES:,} bytes (16 MiB)"
        return _Fault("line-too-long", f"line of {line.size:,} bytes, {limit}")
    if line.data.startswith(BOM):
        message = f"byte order mark at byte {line.offset}, not at the start of the file"
        return _Fault("bom-in-middle", message, "two files were joined: remove the bytes EF BB BF")
    nul = line.data.find(0)
    if nul < 0:
        return None
    message = f"NUL byte at byte {line.offset + nul} (UTF-16 without a byte order mark?)"
    return _Fault("not-utf8", message, "save the file as UTF-8", ends_file=line.number == 1)


def _encoding_fault(error: UnicodeDecodeError, line: _Line) -> _Fault:
    where = f"byte 0x{line.data[error.start]:02X} at byte {line.offset + error.start} of the file"
    if line.last and error.reason == "unexpected end of data":
        message = f"the last line is cut off inside a character ({where})"
        return _Fault("cut-off-line", message, WRITE_AGAIN)
    fix = "save the file as UTF-8 (iconv -f cp1252 -t utf-8)"
    return _Fault("not-utf8", f"{where} is not UTF-8 (cp1252?)", fix)


def _json_fault(error: StrictJsonError, line: _Line, *, first: bool) -> _Fault:
    body = line.data.decode("utf-8").strip(" \t\r\n")
    if first and body.startswith("["):  # an array over several lines
        return replace(_ARRAY, ends_file=True)
    if first and body == "{" and not line.last:
        message = "one JSON object is spread over several lines"
        return _Fault("json", message, ONE_PER_LINE, ends_file=True)
    if line.last and _is_cut_off(error, body):
        return _Fault("cut-off-line", f"the last line is cut off ({error})", WRITE_AGAIN)
    return _Fault(error.rule, str(error))


def _is_cut_off(error: StrictJsonError, body: str) -> bool:
    if error.rule != "json" or not body.startswith("{") or error.reason.startswith("extra data"):
        return False
    unfinished = error.column > len(body) or not body.endswith("}")
    return unfinished or error.reason.startswith("unterminated")
