"""Stage tokenize: which tokens are trained, and how is that proven?

Reads build/prepare/{train,eval}.parquet and the base's tokenizer; every mask is derived twice.
Measured on 2 slow cores with the default base: about 1.5 ms a conversation of two messages.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.chat.examples import fit, tokenize_conversation
from hashtune.chat.stops import StopSet, stop_sequences
from hashtune.chat.summary import summarise
from hashtune.chat.template import Template, load_template
from hashtune.errors import Finding, InputError
from hashtune.records import Conversation, Dropped, Example, example_schema
from hashtune.store.loader import generation_eos_ids, load_tokenizer
from hashtune.store.manifest import read_manifest

PREPARED = Path("build/prepare")
OUT = Path("build/tokenize")
SPLITS = ("train", "eval")
Split = tuple[list[Example], list[Dropped], dict[str, Any]]


def run() -> None:
    """Write the examples of both splits, the ledger of dropped ones and the report."""
    started = time.monotonic()
    spec = frame.read_spec("data", "tokenizer")
    manifest = read_manifest(Path("build/base/manifest.json"))
    template = load_template(load_tokenizer(manifest), spec.tokenizer, root=Path())
    stops = stop_sequences(
        template, eos_ids=generation_eos_ids(manifest), declared=spec.tokenizer.stops
    )
    splits: dict[str, Split] = {}
    findings: list[Finding] = []
    for name in SPLITS:
        try:
            splits[name] = _split(name, template, stops)
        except InputError as error:
            findings += error.findings
    if findings:
        raise InputError(findings)
    ledger = [
        {"split": name, **asdict(item)} for name, split in splits.items() for item in split[1]
    ]
    for name, split in splits.items():
        rows = [asdict(example) for example in split[0]]
        writers.write_parquet(OUT / f"{name}.parquet", rows, example_schema())
    writers.write_jsonl(OUT / "ledger.jsonl", ledger)
    report = {name: split[2] for name, split in splits.items()}
    chat = {"template_sha256": template.sha256, "date": template.date, "stops": stops.texts}
    frame.write_report("tokenize", {**chat, **report})
    _close(report, stops, time.monotonic() - started)


def _split(name: str, template: Template, stops: StopSet) -> Split:
    """Tokenize one split; InputError lists the findings of all its conversations."""
    spec = frame.read_spec("data", "tokenizer")
    rows = writers.read_parquet(PREPARED / f"{name}.parquet")
    examples: list[Example] = []
    findings: list[Finding] = []
    turns = altered = 0
    for row in frame.progress(rows, total=len(rows), label=name):
        conversation = Conversation(**{**row, "messages": json.loads(row["messages"])})
        try:
            done = tokenize_conversation(
                conversation,
                template,
                stops,
                loss_on=spec.data.loss_on,
                unstable=spec.tokenizer.unstable,
                mismatch=spec.tokenizer.mismatch,
            )
        except InputError as error:
            findings += error.findings
            continue
        examples += done.examples
        turns += done.turns
        altered += bool(done.altered)
    if findings:
        raise InputError(findings)
    kept, dropped = fit(
        examples,
        max_seq_len=spec.data.max_seq_len,
        over_length=spec.data.over_length,
        lines={row["id"]: row["line"] for row in rows},
    )
    if not kept and (examples or name == "train"):
        said = f"no example of {name} is left: {len(examples)} in, {len(dropped)} over-long"
        raise InputError(Finding("nothing-left", said, fix="raise data.max_seq_len"))
    counts = {"conversations": len(rows), "turns": turns, "altered": altered}
    tokenizer = template.tokenizer
    return kept, dropped, summarise(kept, dropped, every=examples, tokenizer=tokenizer, **counts)


def _close(report: dict[str, dict[str, Any]], stops: StopSet, seconds: float) -> None:
    tokens = sum(split["tokens"] for split in report.values())
    measured = {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds)}
    frame.write_machine("tokenize", measured, belongs_to=OUT / "train.parquet")
    keys = ("kept", "dropped", "tokens", "trained_tokens", "trained_share", "straddling_rows")
    table = {f"{name} {key}": split[key] for name, split in report.items() for key in keys}
    frame.closing_table("tokenize", {**table, "stops": " ".join(map(repr, stops.texts))})


if __name__ == "__main__":
    frame.main("tokenize", run)
