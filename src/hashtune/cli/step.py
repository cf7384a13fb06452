"""hashtune step N: what a training step saw, each document with its source file and line."""

import argparse
from pathlib import Path

from hashtune.cli.base import MANIFEST
from hashtune.cli.outputs import PACK, PREPARE, TOKENIZE, declared, missing, read_table, read_where
from hashtune.errors import Finding, InputError
from hashtune.inspection import choose
from hashtune.inspection.sheets import Sheet
from hashtune.inspection.steps import Origin, Record, check_examples, in_order, listing, origins
from hashtune.inspection.terminal import as_text
from hashtune.lineage.lock import other_plan
from hashtune.spec.load import read_params, read_spec
from hashtune.spec.methods import adapter_files

LOCK = Path("dvc.lock")
CODE = Path("build/code/train.json")
REPLAY, ANSWERS = "replay", "build/replay/answers.jsonl"


def run(arguments: argparse.Namespace) -> int:
    """Print the rows and documents of the step; with --run also what it gives once more."""
    adapter = None if arguments.adapter is None else Path(arguments.adapter)
    number = _checked(arguments.number, again=arguments.run, adapter=adapter)
    step, rows = _step(number)
    where = _origins(rows)
    _print(listing(step, rows, where))
    if arguments.run:
        from hashtune.cli.step_run import run_again

        _print(run_again(number, adapter, where))
    return 0


def _print(sheet: Sheet) -> None:
    print(as_text([sheet], color=False, ids=False), end="", flush=True)


def _checked(text: str, *, again: bool, adapter: Path | None) -> int:
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
    findings += _cannot_run(adapter) if again else []
    if adapter is not None and not again:
        findings.append(Finding("contradiction", "is for --run only", field="--adapter"))
    if findings:
        raise InputError(findings)
    return int(text)


def _cannot_run(adapter: Path | None) -> list[Finding]:
    findings = missing(MANIFEST, "base") + missing(CODE, "code")
    findings += missing(PACK / "eval.parquet", "pack")
    if adapter is None:
        return findings
    for name in adapter_files(read_spec("method").method.type):
        if not (file := adapter / name).is_file():
            fix = "name the folder of an adapter, such as build/train/adapter"
            findings.append(Finding("no-adapter", "does not exist", file=str(file), fix=fix))
    return findings


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


def _origins(rows: list[Record]) -> dict[str, Origin]:
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
    return origins(examples, conversations, {**files, REPLAY: ANSWERS})
