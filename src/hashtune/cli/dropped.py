"""Rows that prepare and tokenize dropped, as they were read; what a pattern list keeps out of the
data is not shown here either."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import writers
from hashtune.cli.outputs import PREPARE, TOKENIZE, declared, read_table, require
from hashtune.errors import InputError
from hashtune.inspection import choose
from hashtune.inspection.lines import conversation_of
from hashtune.inspection.sheets import Sheet, dropped_sheet
from hashtune.spec.load import read_spec

if TYPE_CHECKING:
    from hashtune.data.patterns import Pattern

LINE_FORMATS = ("jsonl", "csv", "tsv")
SHOWN_BYTES = 2000  # of a dropped line
PATTERN = "pattern"  # the reason of rows in which a pattern was found

Line = Mapping[str, Any]


def dropped(reason: str, count: int) -> list[Sheet]:
    """The first rows that were dropped for this reason.

    Raises:
        InputError: a ledger or a pattern list is not there, or nothing was dropped for this reason.
    """
    ledger: list[Line] = []
    for folder in (PREPARE, TOKENIZE):
        file = folder / "ledger.jsonl"
        require(file, folder.name)
        ledger += [{**line, "stage": folder.name} for line in writers.read_jsonl(file)]
    shown = choose.by_reason(reason, ledger)[:count]
    patterns = _patterns()
    return [_sheet(line, patterns) for line in shown]


def _patterns() -> "list[Pattern]":
    from hashtune.data.patterns import load_patterns

    patterns, findings = load_patterns(read_spec("cleaning").cleaning.patterns, Path())
    if findings:
        raise InputError(findings)
    return patterns


def _sheet(line: Line, patterns: "Sequence[Pattern]") -> Sheet:
    """What tokenize dropped is a conversation of prepare, what prepare dropped a line of a file."""
    if line["reason"] == PATTERN:
        return dropped_sheet(line, withheld="it holds what a pattern list keeps out")
    if line["stage"] == TOKENIZE.name:
        messages = _messages(line)
        if found := _found(messages, patterns):
            return dropped_sheet(line, withheld=f"pattern {found} is found in it")
        return dropped_sheet(line, messages=messages)
    raw = _line_of_source(line["source"], line["line"])
    if found := _found(raw, patterns):
        return dropped_sheet(line, withheld=f"pattern {found} is found in it")
    cut = None if raw is None else raw.encode()[:SHOWN_BYTES].decode("utf-8", "replace")
    return dropped_sheet(line, raw=cut)


def _found(text: str | None, patterns: "Sequence[Pattern]") -> str | None:
    """The name of a pattern that is in a text as it stands, or in one that it spells in JSON."""
    from hashtune.data.json_texts import texts

    if not text or not patterns:
        return None
    try:
        inside = [inner for _, inner in texts(json.loads(text), "")]
    except ValueError:
        inside = []
    forms = [unicodedata.normalize("NFKC", inner) for inner in (text, *inside)]
    return next((p.name for p in patterns if any(map(p.found_in, forms))), None)


def _messages(line: Line) -> str | None:
    """The conversation of an example that tokenize dropped, as JSON text."""
    import pyarrow.compute as pc

    table = read_table(PREPARE / f"{line['split']}.parquet", "prepare")
    found = table.filter(pc.field("id") == conversation_of(line["id"]))
    return str(found["messages"][0]) if found.num_rows else None


def _line_of_source(name: str, number: int) -> str | None:
    """The line of the file that the spec gives this name; None where rows are no lines."""
    source = declared(read_spec("data").data).get(name)
    if source is None or source.uri is None or source.format not in LINE_FORMATS:
        return None
    path = Path(source.uri)
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        line = next(islice(handle, number - 1, None), b"")
    return line.decode("utf-8", "replace").rstrip("\r\n")
