"""A text file byte by byte: strict UTF-8 whatever the locale, lines that end at \\n only.

What every text format shares: the log of a reading, other formats told by their first bytes, byte
order marks, NUL bytes, encodings, the limit of a line. A line is held in memory, the file is not.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any, NamedTuple

from hashtune.errors import Finding, keep_first

MAX_LINE_BYTES = 16 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
UNPACK = "unpack it, and pin what is in it"
FOREIGN_STARTS = {  # name and fix; longest first: UTF-32 LE starts like UTF-16 LE
    b"\xff\xfe\x00\x00": ("UTF-32 (little-endian byte order mark FF FE 00 00)", None),
    b"\x00\x00\xfe\xff": ("UTF-32 (big-endian byte order mark 00 00 FE FF)", None),
    b"\xff\xfe": ("UTF-16 (little-endian byte order mark FF FE)", None),
    b"\xfe\xff": ("UTF-16 (big-endian byte order mark FE FF)", None),
    b"\x1f\x8b": ("gzip", UNPACK),
    b"\x28\xb5\x2f\xfd": ("zstd", UNPACK),
    b"BZh91AY": ("bzip2", UNPACK),
    b"\xfd7zXZ\0": ("xz", UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("7z", UNPACK),
    b"PK\x03\x04": ("zip", "unpack it; of a spreadsheet save the sheet as CSV in UTF-8"),
    b"\xd0\xcf\x11\xe0": ("an old Office file", "save the sheet as CSV in UTF-8"),
    b"PAR1": ("Parquet", "declare format: parquet"),
    b"ARROW1": ("Arrow IPC", "write it as Parquet"),
    b"SQLite format 3\0": ("SQLite", "write the rows as JSON lines"),
    b"%PDF-": ("PDF", None),
    b"version https://git-lfs.github.com/spec/": ("a Git LFS pointer", "git lfs pull"),
    b"<!DOCTYPE": ("an HTML page", "get the file itself, not the page that shows it"),
    b"<html": ("an HTML page", "get the file itself, not the page that shows it"),
}
DECLARE_JSON = "declare format: jsonl, or json for an array"
LONGEST_START = max(map(len, FOREIGN_STARTS))
CONTENT = {
    "jsonl": "with one JSON object per line",
    "json": "with a JSON array of objects",
    "csv": "with comma-separated values",
    "tsv": "with tab-separated values",
}
WRITE_AGAIN = "write the file again; its writer stopped early"


class ReadRow(NamedTuple):
    """A row as written: `line` is 1-based (in Parquet, where there are no lines, the row number);
    `element` is the 0-based place in a JSON array, None in other formats."""

    line: int
    value: dict[str, Any]
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding without its place; `ends_file`: what follows cannot be read."""

    rule: str
    message: str
    fix: str | None = None
    ends_file: bool = False


@dataclass(slots=True)
class Log:
    """What is wrong with a file and what was let pass; `shown` is the path as the user wrote it,
    `more` counts findings beyond the first by rule."""

    shown: str
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, fault: Fault, line: int | None, field: str | None = None) -> None:
        """A finding at a line of this file."""
        finding = Finding(fault.rule, fault.message, self.shown, line, field, fix=fault.fix)
        keep_first([finding], self.findings, self.more)


@dataclass(frozen=True, slots=True)
class Line:
    """One line; of a line above the limit only the size is known and `data` is empty."""

    number: int
    offset: int  # of its first byte in the file
    size: int  # in bytes
    data: bytes
    last: bool

    @property
    def is_blank(self) -> bool:
        """True for a line of spaces and tabs."""
        return self.size == len(self.data) and not self.data.strip(b" \t\r\n")


def starts_as_text(handle: BufferedReader, log: Log, file_format: str) -> bool:
    """Whether the file begins like UTF-8 text; a byte order mark is skipped and noted, another
    format is a finding."""
    start = handle.peek(LONGEST_START)[:LONGEST_START]
    for magic, (name, fix) in FOREIGN_STARTS.items():
        if start.startswith(magic):
            message = f"is {name}, expected UTF-8 text {CONTENT[file_format]}"
            log.add(Fault(f"not-{file_format}", message, fix), 1)
            return False
    begin = start.removeprefix(BOM).lstrip(b" \t\r\n")
    if file_format in ("csv", "tsv") and begin.startswith((b'{"', b'[{"')):
        message = f"begins as JSON does, expected UTF-8 text {CONTENT[file_format]}"
        log.add(Fault(f"not-{file_format}", message, DECLARE_JSON), 1)
        return False
    if start.startswith(BOM):
        handle.read(len(BOM))
        log.notes.append("byte order mark at the start removed")
    return True


def lines(handle: BufferedReader) -> Iterator[Line]:
    """The lines from where the handle stands."""
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
            data = rest = b""
        yield Line(number, offset, size, data, last=not handle.peek(1))
        offset += size


def decode(line: Line) -> str | Fault:
    """The text of a line, or what is wrong with its bytes."""
    if line.size != len(line.data):
        return Fault("line-too-long", f"line of {line.size:,} bytes, {limit_in_words()}")
    if line.data.startswith(BOM):
        message = f"byte order mark at byte {line.offset}, not at the start of the file"
        return Fault("bom-in-middle", message, "two files were joined: remove the bytes EF BB BF")
    nul = line.data.find(0)
    if nul >= 0:
        message = f"NUL byte at byte {line.offset + nul} (UTF-16 without a byte order mark?)"
        return Fault("not-utf8", message, "save the file as UTF-8", ends_file=line.number == 1)
    try:
        return line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return encoding_fault(error, line.data, offset=line.offset, last=line.last)


def encoding_fault(
    error: UnicodeDecodeError, data: bytes, *, offset: int, last: bool, what: str = "last line"
) -> Fault:
    """The byte that is not UTF-8; `offset` is where `data` begins in the file."""
    where = f"byte 0x{data[error.start]:02X} at byte {offset + error.start} of the file"
    if last and error.reason == "unexpected end of data":
        message = f"the {what} is cut off inside a character ({where})"
        return Fault("cut-off-line", message, WRITE_AGAIN)
    fix = "save the file as UTF-8 (iconv -f cp1252 -t utf-8)"
    return Fault("not-utf8", f"{where} is not UTF-8 (cp1252?)", fix)


def limit_in_words() -> str:
    """The limit of a line, for findings."""
    return f"the limit is {MAX_LINE_BYTES:,} bytes (16 MiB)"


def note_blank(count: int, first: int, log: Log) -> None:
    """Say that blank lines were skipped."""
    if count:
        log.notes.append(f"{count} blank lines skipped, the first is line {first}")
