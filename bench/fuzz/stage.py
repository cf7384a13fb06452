"""Files of the fuzz as the only source of the real prepare stage, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fuzz.case import ANYTHING, Case
from fuzz.make import case_of, short
from hashtune import writers
from hashtune.spec.load import read_params

ROOT = Path(__file__).resolve().parents[2]


def _project(folder: Path) -> None:
    """A checkout that holds the code and held-out rows: a stage refuses code outside its folder."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("eval", "test"):
        writers.write_bytes(folder / f"{name}.jsonl", _held_out(name))


def _stage(case: Case, folder: Path, action: str) -> list[str]:
    """Run the prepare stage on the file as its only source; what was not as stated."""
    for name in ("build", "reports"):
        shutil.rmtree(folder / name, ignore_errors=True)
    writers.write_json(folder / "params.yaml", _params(case, action))
    (folder / "data.bin").write_bytes(case.data)
    done = subprocess.run(
        [sys.executable, "-m", "hashtune.stages.prepare"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    free = any(rule == ANYTHING for rule, _ in case.damaged)
    refused = bool(case.damaged) or not case.kept or (action == "error" and bool(case.bad))
    codes = {0, 2} if free else {2} if refused else {0}
    if done.returncode not in codes:
        return [f"prepare exits {done.returncode}, not {codes}: {done.stderr.decode()[-1500:]}"]
    if done.returncode:
        there = (folder / "build/prepare").exists() or (folder / "reports").exists()
        return ["refused, but outputs are there"] if there else []
    return _outputs(case, folder, free)


def _held_out(name: str) -> bytes:
    messages = [{"role": "user", "content": name}, {"role": "assistant", "content": "yes"}]
    return writers.canonical_json({"messages": messages}, indent=None).encode()


def _params(case: Case, action: str) -> dict[str, Any]:
    params = read_params(ROOT / "params.yaml")
    source = {
        "name": "fuzz",
        "uri": "data.bin",
        "sha256": writers.sha256_bytes(case.data),
        "format": case.format,
        "schema": case.schema,
        "fields": case.fields,
    }
    params["data"]["sources"] = [{**params["data"]["sources"][0], **source}]
    params["data"]["replay"] |= {"uri": None, "sha256": None, "share": 0.0}
    for name in ("eval", "test"):
        held_out = {"uri": f"{name}.jsonl", "sha256": writers.sha256_bytes(_held_out(name))}
        params["data"][name] |= held_out | {"format": "jsonl", "schema": "messages", "fields": {}}
    params["cleaning"] |= {"on_bad_row": action, "max_drop_share": 1.0, "deduplicate": "none"}
    params["regression"]["suites"] = []
    return params


def _outputs(case: Case, folder: Path, free: bool) -> list[str]:
    """Rows in = kept + dropped, and every kept message as it was written."""
    report = writers.read_json(folder / "reports/prepare.json")["sources"]["fuzz"]
    rows = writers.read_parquet(folder / "build/prepare/train.parquet")
    kept = {row["line"]: json.loads(row["messages"]) for row in rows}
    ledger = writers.read_jsonl(folder / "build/prepare/ledger.jsonl")
    wrong = []
    if not report["rows"] == len(rows) + len(ledger) == len(rows) + sum(report["dropped"].values()):
        wrong.append(f"{report['rows']} rows in, {len(rows)} kept, {len(ledger)} dropped")
    if not free and kept != case.kept:
        wrong.append(f"train holds {short(kept)}, expected {short(case.kept)}")
    if not free and {row["line"]: row["reason"] for row in ledger} != case.bad:
        wrong.append(f"ledger {short(ledger)}, expected {case.bad}")
    return wrong


def fuzz_stage(seed: int, numbers: range, folder: Path) -> list[str]:
    """Failures of the real stage on these files, under both policies in turn."""
    _project(folder)
    failures = []
    for number in numbers:
        case = case_of(seed, number)
        wrong = _stage(case, folder, "drop" if number % 2 else "error")
        failures += [f"{seed}/{number} ({case.maker}): stage: {fault}" for fault in wrong]
    return failures
