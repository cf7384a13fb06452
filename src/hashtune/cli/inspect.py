"""hashtune inspect: examples, rows, steps and dropped rows, with the trained tokens marked."""

import argparse
import os
from typing import Any

from hashtune import records
from hashtune.cli.base import require_manifest
from hashtune.cli.dropped import dropped
from hashtune.cli.lengths import lengths
from hashtune.cli.outputs import PACK, TOKENIZE, read_table, read_where
from hashtune.cli.page_file import write_page
from hashtune.cli.streams import colored
from hashtune.errors import Finding, InputError
from hashtune.inspection import choose
from hashtune.inspection.page import HEAD, as_page
from hashtune.inspection.sheets import Sheet, example_sheet, row_sheet, step_sheet
from hashtune.inspection.steps import in_order
from hashtune.inspection.terminal import as_text
from hashtune.spec.load import read_spec


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen sheets, or write them as a page."""
    _check(arguments)
    sheets = _sheets(arguments)
    if arguments.html is not None:
        page, start = as_page(sheets, ids=arguments.ids), HEAD[: HEAD.index("<style>")]
        write_page(arguments.html, page, start=start, command="inspect", option="--html")
        print(f"wrote {arguments.html}")
        return 0
    color = colored(os.environ, asked=arguments.color)
    print(as_text(sheets, color=color, ids=arguments.ids), end="", flush=True)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that say nothing, all at once; a split that is not named is train."""
    findings = []
    if arguments.n < 1:
        message = f"is {arguments.n}, must be at least 1"
        findings.append(Finding("bad-count", message, field="-n", fix="-n 1 or more"))
    if arguments.split == "eval" and arguments.step is not None:
        message = "has no part in a step of training"
        fix = "leave --split away, or look at eval rows with --rows"
        findings.append(Finding("contradiction", message, field="--split", fix=fix))
    if arguments.split is not None and arguments.dropped is not None:
        message, fix = "does not choose among dropped rows", "leave --split away"
        findings.append(Finding("contradiction", message, field="--split", fix=fix))
    if arguments.seed is not None and not arguments.random:
        message, fix = "is for --random only", "add --random, or leave --seed away"
        findings.append(Finding("contradiction", message, field="--seed", fix=fix))
    if findings:
        raise InputError(findings)
    arguments.split = arguments.split or "train"
    arguments.seed = arguments.seed or 0


def _sheets(arguments: argparse.Namespace) -> list[Sheet]:
    if arguments.lengths is not None:
        return [lengths(arguments.split, arguments.lengths)]
    if arguments.dropped is not None:
        return dropped(arguments.dropped, arguments.n)
    if arguments.step is not None:
        return _step(arguments.step, arguments.n)
    if arguments.rows:
        file = PACK / f"{arguments.split}.parquet"
        table = read_table(file, "pack", records.row_schema().names)
        places = choose.by_number(
            arguments.rows, first=0, count=table.num_rows, noun="row", file=str(file)
        )
        rows = table.take(places).to_pylist()
        return [row_sheet(row, _tokenizer(), split=arguments.split) for row in rows]
    return _examples(arguments)


def _examples(arguments: argparse.Namespace) -> list[Sheet]:
    file = TOKENIZE / f"{arguments.split}.parquet"
    table = read_table(file, "tokenize", records.example_schema().names)
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
    columns = records.row_schema().names
    steps = read_table(file, "pack", records.step_schema().names)
    (place,) = choose.by_number(
        [number], first=1, count=steps.num_rows, noun="step", file=str(file)
    )
    (step,) = steps.take([place]).to_pylist()
    rows = PACK / "train.parquet"
    read_table(rows, "pack", columns)  # as every output: damaged, it is named
    among = step["rows"]
    seen = in_order(step, read_where(rows, "pack", key="row", among=among, columns=columns))
    tokenizer = _tokenizer()
    shown = [row_sheet(row, tokenizer, split="train", step=step) for row in seen[:count]]
    return [step_sheet(step, seen), *shown]


def _tokenizer() -> Any:
    from hashtune.store.loader import load_tokenizer
    from hashtune.store.manifest import read_manifest

    added = read_spec("tokenizer").tokenizer.added_tokens
    return load_tokenizer(read_manifest(require_manifest()), added)
