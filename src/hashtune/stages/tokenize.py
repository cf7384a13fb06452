"""Which tokens are trained, and how is that proven? Every mask is derived twice and compared.

reads   build/prepare/{train,eval}.parquet, the base's tokenizer, data.{max_seq_len, loss_on,
        over_length}, tokenizer
writes  build/tokenize/{train,eval}.parquet, ledger.jsonl, reports/tokenize.json and
        reports/plots/lengths.tsv
cost    default base, one question and answer of 160 tokens: 3 ms on one of 2 slow cores
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.chat.examples import Tokenized, fit, tokenize_conversation
from hashtune.chat.pinned import load_template
from hashtune.chat.stops import StopSet, stop_sequences
from hashtune.chat.summary import summarise
from hashtune.errors import Finding, InputError
from hashtune.records import Conversation, Dropped, Example, example_schema
from hashtune.store.loader import generation_eos_ids, load_tokenizer
from hashtune.store.manifest import read_manifest

PREPARED = Path("build/prepare")
OUT = Path("build/tokenize")
SPLITS = ("train", "eval")
Split = tuple[list[Example], list[Dropped], dict[str, Any]]
Fit = Callable[..., tuple[list[Example], list[Dropped]]]


def run() -> None:
    """Write the examples of both splits, the ledger of dropped ones and the report."""
    started = time.monotonic()
    spec = frame.read_spec("data", "tokenizer")
    manifest = read_manifest(Path("build/base/manifest.json"))
    template = load_template(load_tokenizer(manifest), spec.tokenizer, root=Path())
    eos_ids = generation_eos_ids(manifest)
    stops = stop_sequences(template, eos_ids=eos_ids, declared=spec.tokenizer.stops)
    tokenize = partial(
        tokenize_conversation,
        template=template,
        stops=stops,
        loss_on=spec.data.loss_on,
        unstable=spec.tokenizer.unstable,
        mismatch=spec.tokenizer.mismatch,
    )
    limit = partial(fit, max_seq_len=spec.data.max_seq_len, over_length=spec.data.over_length)
    splits: dict[str, Split] = {}
    findings: list[Finding] = []
    for name in SPLITS:
        try:
            splits[name] = _split(name, tokenize, limit, template.tokenizer)
        except InputError as error:
            findings += error.findings
    if findings:
        raise InputError(findings)
    for name, (kept, _, _) in splits.items():
        rows = [asdict(example) for example in kept]
        writers.write_parquet(OUT / f"{name}.parquet", rows, example_schema())
    ledger = [{"split": name, **asdict(d)} for name, split in splits.items() for d in split[1]]
    writers.write_jsonl(OUT / "ledger.jsonl", ledger)
    reports = {name: split[2] for name, split in splits.items()}
    curves = {name: report.pop("length_curve") for name, report in reports.items()}
    writers.write_text(Path("reports/plots/lengths.tsv"), curves["train"])
    pins = {
        "template_sha256": template.sha256,
        "date": template.date,
        "stops": stops.texts,
        "stop_ids": stops.single_ids,
    }
    frame.write_report("tokenize", {**pins, **reports})
    _close(reports, stops, time.monotonic() - started)


def _split(name: str, tokenize: Callable[..., Tokenized], limit: Fit, tokenizer: Any) -> Split:
    """Tokenize one split; InputError lists the findings of all its conversations."""
    rows = writers.read_parquet(PREPARED / f"{name}.parquet")
    done: list[Tokenized] = []
    findings: list[Finding] = []
    for row in frame.progress(rows, total=len(rows), label=name):
        try:
            done.append(tokenize(Conversation(**row | {"messages": json.loads(row["messages"])})))
        except InputError as error:
            findings += error.findings
    if findings:
        raise InputError(findings)
    every = [example for item in done for example in item.examples]
    kept, dropped = limit(every, lines={row["id"]: row["line"] for row in rows})
    if not kept and (every or name == "train"):
        said = f"no example of {name} is left: {len(every)} in, {len(dropped)} over-long"
        raise InputError(Finding("nothing-left", said, fix="raise data.max_seq_len"))
    report = summarise(
        kept,
        dropped,
        every=every,
        conversations=len(rows),
        turns=sum(item.turns for item in done),
        altered=sum(bool(item.altered) for item in done),
        tokenizer=tokenizer,
    )
    return kept, dropped, report


def _close(reports: dict[str, dict[str, Any]], stops: StopSet, seconds: float) -> None:
    tokens = sum(report["tokens"] for report in reports.values())
    measured = {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds)}
    frame.write_machine("tokenize", measured, belongs_to=OUT / "train.parquet")
    keys = ("kept", "dropped", "tokens", "trained_tokens", "trained_share", "straddling_rows")
    table = {f"{name} {key}": report[key] for name, report in reports.items() for key in keys}
    frame.closing_table("tokenize", {**table, "stops": " ".join(map(repr, stops.texts))})


if __name__ == "__main__":
    frame.main("tokenize", run)
