"""Files of the fuzz as the only source of the real stages prepare and tokenize (fuzz.server)."""

import json
from collections.abc import Iterator
from pathlib import Path

from fuzz.case import ANYTHING, Case
from fuzz.checkout import Checkout
from fuzz.make import case_of, short
from fuzz.tokens import outcomes, trained_fault
from hashtune import writers
from hashtune.spec.rows import TALK_RULES


def _faults(case: Case, checkout: Checkout, action: str) -> Iterator[str]:
    """Run both stages; say what was not as stated."""
    checkout.lay_out(case, action)
    free = any(rule == ANYTHING for rule, _ in case.damaged)
    refused = bool(case.damaged) or not case.kept or (action == "error" and bool(case.bad))
    yield from _ends(checkout, "prepare", {0, 2} if free else {2} if refused else {0})
    if not checkout.done("prepare"):
        return
    yield from _prepared(case, checkout.folder, free)
    expected = outcomes(case).values()
    stops = {row.rule for row in expected if row.rule and not _dropped(row.rule, action)}
    refused = bool(stops) or all(row.long or row.rule for row in expected)
    yield from _ends(checkout, "tokenize", {0, 2} if free else {2} if refused else {0})
    if checkout.done("tokenize"):
        yield from _tokenized(case, checkout.folder, free)


def _dropped(rule: str, action: str) -> bool:
    """Whether the stage drops a row that breaks this rule."""
    return action == "drop" and rule in TALK_RULES


def _ends(checkout: Checkout, stage: str, codes: set[int]) -> Iterator[str]:
    """Run a stage and look at its exit code: 0 with all outputs, 2 with none."""
    code = checkout.run(stage)
    there = checkout.outputs(stage)
    if code not in codes:
        yield f"{stage} exits {code}, not {codes}: {checkout.words()}"
    elif there != [code == 0] * 2:
        yield f"{stage} exits {code}, outputs are there: {there}"


def _prepared(case: Case, folder: Path, free: bool) -> Iterator[str]:
    """Rows in = kept + dropped, and every kept message as it was written."""
    report = writers.read_json(folder / "reports/prepare.json")["sources"]["fuzz"]
    rows = writers.read_parquet(folder / "build/prepare/train.parquet")
    kept = {row["line"]: json.loads(row["messages"]) for row in rows}
    ledger = writers.read_jsonl(folder / "build/prepare/ledger.jsonl")
    if not report["rows"] == len(rows) + len(ledger) == len(rows) + sum(report["dropped"].values()):
        yield f"{report['rows']} rows in, {len(rows)} kept, {len(ledger)} dropped"
    if not free and kept != case.kept:
        yield f"train holds {short(kept)}, expected {short(case.kept)}"
    if not free and {row["line"]: row["reason"] for row in ledger} != case.bad:
        yield f"ledger {short(ledger)}, expected {case.bad}"


def _tokenized(case: Case, folder: Path, free: bool) -> Iterator[str]:
    """Rows in = kept + dropped, and the trained text of every example."""
    report = writers.read_json(folder / "reports/tokenize.json")["train"]
    lines = {
        row["id"]: row["line"]
        for row in writers.read_parquet(folder / "build/prepare/train.parquet")
    }
    rows = writers.read_parquet(folder / "build/tokenize/train.parquet")
    ledger = writers.read_jsonl(folder / "build/tokenize/ledger.jsonl")
    dropped = sum(report["dropped"].values())
    if not len(lines) == report["rows_in"] == len(rows) + len(ledger) == len(rows) + dropped:
        yield f"{len(lines)} rows in, {len(rows)} kept, {len(ledger)} dropped; report {report}"
    expected = {} if free else outcomes(case)
    if not free and {line["line"] for line in ledger} != {
        line for line, outcome in expected.items() if outcome.long or outcome.rule
    }:
        yield f"ledger {short(ledger)}"
    for row in rows:
        outcome = expected.get(lines[row["conversation_id"]])
        if outcome and (fault := trained_fault(row, outcome)):
            yield f"line {lines[row['conversation_id']]}: {fault}"


def fuzz_stage(seed: int, numbers: range, folder: Path) -> list[str]:
    """Failures of the real stages on these files, under both policies in turn."""
    checkout = Checkout(folder)
    failures = []
    for number in numbers:
        case = case_of(seed, number)
        wrong = list(_faults(case, checkout, "drop" if number % 2 else "error"))
        failures += [f"{seed}/{number} ({case.maker}): stage: {fault}" for fault in wrong]
    checkout.close()
    return failures
