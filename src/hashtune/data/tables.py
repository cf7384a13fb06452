"""Read CSV and TSV: every cell stays the text that is written (00501, 2024-01-05, True, 1e5).

Python's csv module in strict mode over lines read as for JSON lines, so that a quoted cell may
hold line ends, and encoding, NUL bytes and byte order marks are judged alike. The first record
names the columns. A record is held in memory, the file is not.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Literal

from hashtune.data.lines import (
    MAX_LINE_BYTES,
    WRITE_AGAIN,
    Fault,
    Log,
    ReadRow,
    decode,
    limit_in_words,
    lines,
    note_blank,
    starts_as_text,
)
from hashtune.errors import nearest

DELIMITERS = {"csv": ",", "tsv": "\t"}
OTHER_DELIMITERS = {"csv": ";\t|", "tsv": ",;|"}


@dataclass(slots=True)
class _Record:
    """What the lines of the record being read were like."""

    start: int = 1  # its first line
    size: int = 0
    broken: bool = False  # a line of it has a finding of its own
    ended: bool = False  # no line after it can be read


def rows_of_table(
    path: Path, log: Log, file_format: Literal["csv", "tsv"], *, needed: Sequence[str]
) -> Iterator[ReadRow]:
    """The sound rows one by one, a row's line being its record's first; findings and notes go to
    the log. `needed` are the columns without which no row can be used."""
    header: list[str] = []
    blank = first_blank = 0
    with path.open("rb") as handle:
        if not starts_as_text(handle, log, file_format):
            return
        for line, cells in _records(handle, log, DELIMITERS[file_format]):
            if not cells:
                blank += 1
                first_blank = first_blank or line
            elif not header:
                faults = header_faults(cells, needed, OTHER_DELIMITERS[file_format])
                for fault in faults:
                    log.add(fault, line)
                if faults:
                    return
                header = cells
            elif cells == header:
                fix = "remove the line; look at the end of the first file, too"
                message = "the header again: two files were joined"
                log.add(Fault("header-again", message, fix), line)
            elif len(cells) != len(header):
                message = f"{_cells(len(cells))}, the header has {len(header)}"
                log.add(Fault("cells", message), line)
            else:
                yield ReadRow(line, dict(zip(header, cells, strict=True)))
    note_blank(blank, first_blank, log)


def _records(handle: BufferedReader, log: Log, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(first line, cells) of every sound record; no cells for a blank line."""
    csv.field_size_limit(MAX_LINE_BYTES)  # the module's own is 128 KiB for the whole process
    record = _Record()
    reader = csv.reader(_texts(handle, log, record), delimiter=delimiter, strict=True)
    first = True
    while not record.ended:
        start = reader.line_num + 1
        record.start, record.size, record.broken = start, 0, False
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not record.ended:
                log.add(_csv_fault(error), start)
            record.broken = True
        if record.broken:
            if first:  # without a header no cell has a name
                return
            continue
        first = first and not cells
        yield start, cells


def _texts(handle: BufferedReader, log: Log, record: _Record) -> Iterator[str]:
    """The lines as text; a broken one is reported and still read, since it may hold a quote."""
    for line in lines(handle):
        record.size += line.size
        text = decode(line)
        if not isinstance(text, Fault) and record.size > MAX_LINE_BYTES:
            message = f"record of {record.size:,} bytes so far, {limit_in_words()}"
            fix = f"the record begins at line {record.start}: is a quote missing there?"
            text = Fault("line-too-long", message, fix)
        if isinstance(text, Fault):
            log.add(text, line.number)
            record.broken = True
            record.ended = text.ends_file or text.rule == "line-too-long"
            if record.ended:
                return
            text = line.data.decode("utf-8", "replace")
        yield text


def _csv_fault(error: csv.Error) -> Fault:
    reason = str(error)
    if reason == "unexpected end of data":
        return Fault("cut-off-line", "a quoted cell is not closed before the end", WRITE_AGAIN)
    if "new-line character" in reason:
        fix = "end lines with \\n or \\r\\n, and quote a cell that holds a line end"
        return Fault("csv", "carriage return in a cell without quotes", fix)
    return Fault("csv", reason, 'write a quote inside a quoted cell twice: ""')


def header_faults(names: Sequence[str], needed: Sequence[str], others: str = "") -> list[Fault]:
    """What is wrong with the names of the columns; `others` are delimiters of other formats."""
    faults = []
    if len(names) == 1 and (found := [c for c in others if c in names[0]]):
        return [
            Fault("columns", f"one column only, with {found[0]!r} in its name", "wrong format?")
        ]
    for place, name in enumerate(names, start=1):
        if not name.strip():
            faults.append(Fault("columns", f"column {place} has no name"))
        elif name in names[: place - 1]:
            first = list(names).index(name) + 1
            message = f"columns {first} and {place} have one name, {name!r}"
            faults.append(Fault("columns", message))
    for name in needed:
        if name not in names:
            fix = "name the file's own column under `fields` of the source"
            message = f"no column {name!r}; {nearest(name, names)}"
            faults.append(Fault("missing-column", message, fix))
    return faults


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"
