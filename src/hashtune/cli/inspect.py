"""hashtune inspect: examples, rows, steps and dropped rows, with the trained tokens marked."""

import argparse
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.cli.base import require_manifest
from hashtune.cli.outputs import PACK, PREPARE, TOKENIZE, declared, read_table, require
from hashtune.errors import Finding, InputError
from hashtune.inspection import choose
from hashtune.inspection.lines import conversation_of
from hashtune.inspection.page import as_page
from hashtune.inspection.sheets import (
    Sheet,
    dropped_sheet,
    example_sheet,
    lengths_sheet,
    row_sheet,
    step_sheet,
)
from hashtune.inspection.terminal import as_text
from hashtune.spec.load import read_spec

REPORT = Path("reports/tokenize.json")
LINE_FORMATS = ("jsonl", "csv", "tsv")
SHOWN_BYTES = 2000  # of a dropped line


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen sheets, or write them as a page."""
    if arguments.n < 1:
        message = f"is {arguments.n}, must be at least 1"
        raise InputError(Finding("bad-count", message, field="-n", fix="-n 1 or more"))
    sheets = _sheets(arguments)
    if arguments.html:
        _write(arguments.html, as_page(sheets, ids=arguments.ids))
        return 0
    color = arguments.color or sys.stdout.isatty()
    _print(as_text(sheets, color=color, ids=arguments.ids))
    return 0


def _sheets(arguments: argparse.Namespace) -> list[Sheet]:
    if arguments.lengths:
        return [_lengths(arguments.split)]
    if arguments.dropped is not None:
        return _dropped(arguments.dropped, arguments.n)
    if arguments.step is not None:
        return _step(arguments.step, arguments.n)
    if arguments.rows:
        file = PACK / f"{arguments.split}.parquet"
        table = read_table(file, "pack")
        places = choose.by_number(
            arguments.rows, first=0, count=table.num_rows, noun="row", file=str(file)
        )
        rows = table.take(places).to_pylist()
        return [row_sheet(row, _tokenizer(), split=arguments.split) for row in rows]
    return _examples(arguments)


def _examples(arguments: argparse.Namespace) -> list[Sheet]:
    file = TOKENIZE / f"{arguments.split}.parquet"
    table = read_table(file, "tokenize")
    places = list(range(min(arguments.n, table.num_rows)))
    if arguments.examples:
        places = choose.by_id(arguments.examples, table["id"].to_pylist(), file=str(file))
    elif arguments.random:
        places = choose.at_random(table.num_rows, arguments.n, seed=arguments.seed)
    elif arguments.longest:
        lengths = table["input_ids"].combine_chunks().value_lengths().to_pylist()
        places = choose.longest(lengths, arguments.n)
    examples = table.take(places).to_pylist()
    if not examples:
        raise InputError(Finding("no-examples", "has no examples", file=str(file), fix=choose.NONE))
    tokenizer = _tokenizer()
    return [example_sheet(example, tokenizer, split=arguments.split) for example in examples]


def _step(number: int, count: int) -> list[Sheet]:
    file = PACK / "steps.parquet"
    steps, rows = read_table(file, "pack"), read_table(PACK / "train.parquet", "pack")
    (place,) = choose.by_number(
        [number], first=1, count=steps.num_rows, noun="step", file=str(file)
    )
    (step,) = steps.take([place]).to_pylist()
    seen = rows.take(step["rows"]).to_pylist()
    tokenizer = _tokenizer()
    shown = [row_sheet(row, tokenizer, split="train", step=step) for row in seen[:count]]
    return [step_sheet(step, seen), *shown]


def _lengths(split: str) -> Sheet:
    require(REPORT, "tokenize")
    report = writers.read_json(REPORT)[split]
    if "split" not in report:
        fix = "dvc repro tokenize"
        text = "does not say what limits lose when they split"
        raise InputError(Finding("old-report", text, file=str(REPORT), fix=fix))
    return lengths_sheet(report, split=split)


def _dropped(reason: str, count: int) -> list[Sheet]:
    ledger = []
    for folder in (PREPARE, TOKENIZE):
        file = folder / "ledger.jsonl"
        require(file, folder.name)
        ledger += [{**line, "stage": folder.name} for line in writers.read_jsonl(file)]
    shown = choose.by_reason(reason, ledger)[:count]
    return [_dropped_sheet(line) for line in shown]


def _dropped_sheet(line: Any) -> Sheet:
    """What tokenize dropped is a conversation of prepare, what prepare dropped a line of a file."""
    if line["stage"] == "tokenize":
        return dropped_sheet(line, messages=_messages(line))
    return dropped_sheet(line, raw=_line_of_source(line["source"], line["line"]))


def _messages(line: Any) -> str | None:
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
    return line[:SHOWN_BYTES].decode("utf-8", "replace").rstrip("\r\n")


def _tokenizer() -> Any:
    from hashtune.store.loader import load_tokenizer
    from hashtune.store.manifest import read_manifest

    added = read_spec("tokenizer").tokenizer.added_tokens
    return load_tokenizer(read_manifest(require_manifest()), added)


def _write(file: Path, page: str) -> None:
    if not file.parent.is_dir():
        message, fix = f"{file.parent} is no folder", "name a file in a folder that exists"
        raise InputError(Finding("unwritable", message, file=str(file), field="--html", fix=fix))
    try:
        writers.write_text(file, page)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        fix = "name another file, or make this one writable"
        finding = Finding("unwritable", message, file=str(file), field="--html", fix=fix)
        raise InputError(finding) from error
    print(f"wrote {file}")


def _print(text: str) -> None:
    """Print what the terminal's encoding cannot hold as numbers; a closed pipe is no fault."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
