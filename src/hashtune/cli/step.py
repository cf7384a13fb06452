"""hashtune step N: what a training step saw, each document with its source file and line."""

import argparse
from pathlib import Path

from hashtune.cli.outputs import PACK, PREPARE, TOKENIZE, declared, missing, read_table, read_where
from hashtune.errors import Finding, InputError
from hashtune.inspection import choose
from hashtune.inspection.sheets import Sheet
from hashtune.inspection.steps import Record, check_examples, in_order, listing, origins
from hashtune.inspection.terminal import as_text
from hashtune.lineage.lock import other_plan
from hashtune.spec.load import read_params, read_spec

LOCK = Path("dvc.lock")
REPLAY, ANSWERS = "replay", "build/replay/answers.jsonl"


def run(arguments: argparse.Namespace) -> int:
    """Print the rows and documents of the step."""
    number = _checked(arguments.number)
    step, rows = _step(number)
    print(as_text([_sheet(step, rows)], color=False, ids=False), end="")
    return 0


def _checked(text: str) -> int:
    """The step's number; InputError with all that stands in the way: it is no number, outputs are
    missing, the plan is of other settings."""
    findings = []
    if not text.removeprefix("-").isdecimal():
        findings.append(Finding("bad-number", f"{text!r} is no number of a step", field="N"))
    for stage, folder in (("prepare", PREPARE), ("tokenize", TOKENIZE), ("pack", PACK)):
        findings += missing(folder / "train.parquet", stage)
    findings += missing(PACK / "steps.parquet", "pack")
    findings += missing(LOCK, "pack")
    if LOCK.is_file():
        findings += other_plan(LOCK.read_text(encoding="utf-8"), read_params())
    if findings:
        raise InputError(findings)
    return int(text)


def _step(number: int) -> tuple[Record, list[Record]]:
    """The step and its rows, in the order they are seen."""
    file = PACK / "steps.parquet"
    steps = read_table(file, "pack")
    (place,) = choose.by_number(
        [number], first=1, count=steps.num_rows, noun="step", file=str(file)
    )
    (step,) = steps.take([place]).to_pylist()
    columns = ("row", "example_ids", "lengths", "input_ids", "labels")
    rows = read_where(
        PACK / "train.parquet", "pack", key="row", among=step["rows"], columns=columns
    )
    return step, in_order(step, rows)


def _sheet(step: Record, rows: list[Record]) -> Sheet:
    names = [name for row in rows for name in row["example_ids"]]
    examples = read_where(
        TOKENIZE / "train.parquet",
        "tokenize",
        key="id",
        among=names,
        columns=("id", "conversation_id"),
    )
    check_examples(rows, examples)
    conversations = read_where(
        PREPARE / "train.parquet",
        "prepare",
        key="id",
        among=[example["conversation_id"] for example in examples],
        columns=("id", "source", "line"),
    )
    files = {name: str(file.uri) for name, file in declared(read_spec("data").data).items()}
    return listing(step, rows, origins(examples, conversations, {**files, REPLAY: ANSWERS}))
