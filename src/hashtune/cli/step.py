"""hashtune step N: what a training step saw, each document with its source file and line."""

import argparse
from pathlib import Path

from hashtune.cli.base import MANIFEST
from hashtune.cli.outputs import PACK, PREPARE, TOKENIZE, declared, missing, read_table, read_where
from hashtune.errors import Finding, InputError
from hashtune.inspection import choose
from hashtune.inspection.lines import conversation_of
from hashtune.inspection.sheets import Sheet
from hashtune.inspection.steps import Origin, Record, check_examples, in_order, listing, origins
from hashtune.inspection.terminal import as_text
from hashtune.lineage.lock import other_plan
from hashtune.lineage.trusted import refusals
from hashtune.spec.load import read_params, read_spec
from hashtune.spec.methods import adapter_files

LOCK = Path("dvc.lock")
CODE = Path("build/code/train.json")
NEEDED = (
    *(folder / "train.parquet" for folder in (PREPARE, TOKENIZE, PACK)),
    *(PACK / "steps.parquet", LOCK),
)
TO_RUN = (MANIFEST, CODE, PACK / "eval.parquet")
REPLAY, ANSWERS = "replay", "build/replay/answers.jsonl"


def run(arguments: argparse.Namespace) -> int:
    """Print the rows and documents of the step; with --run also what it gives once more."""
    adapter = None if arguments.adapter is None else Path(arguments.adapter)
    number = _checked(arguments.number, again=arguments.run, adapter=adapter)
    unreleased = arguments.unreleased
    if adapter is not None and (found := refusals(adapter, Path.cwd(), unreleased=unreleased)):
        raise InputError(found)
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
        message, fix = f"{text!r} is no number of a step", "give a whole number from 1"
        findings.append(Finding("bad-number", message, field="N", fix=fix))
    findings += missing([*NEEDED, *(TO_RUN if again else ())], "pack")
    if LOCK.is_file():
        findings += other_plan(LOCK.read_text(encoding="utf-8"), read_params())
    findings += _no_adapter(adapter) if again and adapter is not None else []
    if adapter is not None and not again:
        fix = "add --run, or leave --adapter away"
        findings.append(Finding("contradiction", "is for --run only", field="--adapter", fix=fix))
    if findings:
        raise InputError(findings)
    return int(text)


def _no_adapter(folder: Path) -> list[Finding]:
    fix = "name the folder of an adapter, such as build/train/adapter"
    files = [folder / name for name in adapter_files(read_spec("method").method.type)]
    return [
        Finding("no-adapter", "does not exist", file=str(file), fix=fix)
        for file in files
        if not file.is_file()
    ]


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
        TOKENIZE / "train.parquet", "tokenize", key="id", among=names, columns=("id",)
    )
    check_examples(rows, examples)
    conversations = read_where(
        PREPARE / "train.parquet",
        "prepare",
        key="id",
        among=[conversation_of(name) for name in names],
        columns=("id", "source", "line"),
    )
    files = {name: str(file.uri) for name, file in declared(read_spec("data").data).items()}
    return origins(names, conversations, {**files, REPLAY: ANSWERS})
