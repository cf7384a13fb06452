"""Which tokens are trained, and how is that proven? Every mask is derived twice and compared.

A plain text is trained whole, without the template, and proven in its own way (chat/texts.py). An
example longer than data.max_seq_len is dropped, refused or cut behind a turn (chat/over_length.py).
A row with a finding stops the stage or is dropped, as cleaning.on_bad_row says (chat/policy.py).

reads   build/prepare/{train,eval}.parquet, the base's tokenizer, data.{max_seq_len, loss_on,
        over_length}, tokenizer, cleaning.{on_bad_row, max_drop_share}; the data files are named
writes  build/tokenize/{train,eval}.parquet, ledger.jsonl, lengths.json (what any limit keeps),
        reports/tokenize.json and reports/plots/lengths.tsv
cost    bench/tokenize_vs_trl.py and bench/tokenize_memory.py measure it. Rows go through in chunks,
        in as many processes as there are cores or HASHTUNE_PROCESSES says; the outputs do not
        depend on that number, the memory not on the number of rows
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, processes, writers
from hashtune.chat.argument_values import argument_values
from hashtune.chat.chunks import Chunk, tokenize_rows
from hashtune.chat.controls import in_several_ids
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.over_length import fit
from hashtune.chat.pinned import load_template
from hashtune.chat.policy import nothing_left, share_findings, together
from hashtune.chat.stops import StopSet, stop_sequences
from hashtune.chat.summary import SAMPLES, summarise, tally
from hashtune.chat.texts import by_kind, tokenize_text
from hashtune.errors import Finding, Findings, InputError
from hashtune.records import Dropped, Example, example_schema
from hashtune.spec.schema import Spec
from hashtune.store.loader import generation_eos_ids, load_tokenizer
from hashtune.store.manifest import read_manifest

if TYPE_CHECKING:
    import pyarrow as pa

PREPARED = Path("build/prepare")
OUT = Path("build/tokenize")
SPLITS = ("train", "eval")
ANSWERS = "build/replay/answers.jsonl"
CHUNK_ROWS = 128
Rows = Sequence[Mapping[str, Any]]


def run() -> None:
    """Write the examples of both splits, the ledger of dropped and cut ones and the report."""
    started = time.monotonic()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
    spec = frame.read_spec("data", "tokenizer", "cleaning")
    manifest = read_manifest(Path("build/base/manifest.json"))
    tokenizer = load_tokenizer(manifest, spec.tokenizer.added_tokens)
    template = load_template(tokenizer, spec.tokenizer, root=Path())
    eos_ids = generation_eos_ids(manifest)
    stops = stop_sequences(template, eos_ids=eos_ids, declared=spec.tokenizer.stops)
    chat = partial(
        tokenize_conversation,
        template=template,
        stops=stops,
        loss_on=spec.data.loss_on,
        unstable=spec.tokenizer.unstable,
        mismatch=spec.tokenizer.mismatch,
    )
    cut = spec.data.max_seq_len if spec.data.over_length == "split" else None
    text = partial(tokenize_text, template=template, cut=cut)
    tokenize = partial(by_kind, chat=chat, text=text)
    limit = partial(
        fit,
        max_seq_len=spec.data.max_seq_len,
        over_length=spec.data.over_length,
        stop_ids=stops.ids,
    )
    on_bad_row = spec.cleaning.on_bad_row
    chunk = partial(tokenize_rows, tokenize=tokenize, limit=limit, on_bad_row=on_bad_row)
    share, files = spec.cleaning.max_drop_share, _files(spec)
    reports: dict[str, dict[str, Any]] = {}
    found = Findings()
    with writers.staged_directory(OUT) as folder:
        for name in SPLITS:
            try:
                reports[name] = _split(
                    name, folder, chunk, template.tokenizer, max_drop_share=share
                )
            except InputError as error:
                found.add((_in_file(finding, files) for finding in error.findings), error.more)
        if found:
            raise found.error()
        tables = {name: report.pop("length_table") for name, report in reports.items()}
        writers.write_text(folder / "lengths.json", writers.canonical_json(tables, indent=None))
    curves = {name: report.pop("length_curve") for name, report in reports.items()}
    writers.write_text(Path("reports/plots/lengths.tsv"), curves["train"])
    several = in_several_ids(template, stops)
    pins = {
        "template_sha256": template.sha256,
        "chat_template": template.name,
        "template_kwargs": template.kwargs,
        "mismatch": spec.tokenizer.mismatch,
        "unstable": spec.tokenizer.unstable,
        "system": spec.tokenizer.system,
        "loss_on": spec.data.loss_on,
        "date": template.date,
        "stops": stops.texts,
        "stop_ids": stops.single_ids,
        "in_several_ids": several,
        "argument_values": argument_values(template),
    }
    frame.write_report("tokenize", {**pins, **reports})
    for control, count in several.items():
        frame.say(f"  warning: {control!r} is {count} ids (tokenizer.added_tokens makes it one)")
    _close(reports, stops, time.monotonic() - started)


def _files(spec: Spec) -> dict[str, str]:
    """The file of each source, as the spec names it; rows know their source and line."""
    files = {"replay": ANSWERS, **{source.name: source.uri for source in spec.data.sources}}
    return files if spec.data.eval.uri is None else files | {"eval": spec.data.eval.uri}


def _in_file(finding: Finding, files: Mapping[str, str]) -> Finding:
    """The finding with the name of its file in place of its source's."""
    source = finding.file or ""
    return replace(finding, file=files.get(source, finding.file))


def _split(
    name: str,
    folder: Path,
    chunk: Callable[[Rows], Chunk],
    tokenizer: Any,
    *,
    max_drop_share: float,
) -> dict[str, Any]:
    """Tokenize one split: its examples, its ledger lines and its report.

    What is held does not grow with the rows: counts, a few samples and findings, chunks in flight.

    Raises:
        InputError: the findings of all its conversations, or of the dropped ones where they are
            more than `max_drop_share` of its rows.
    """
    source = PREPARED / f"{name}.parquet"
    count = -(-writers.parquet_rows(source) // CHUNK_ROWS)
    found = processes.in_order(
        chunk,
        writers.parquet_chunks(source, CHUNK_ROWS),
        processes=min(_workers(), max(1, count)),
        start=frame.die_with_parent,
    )
    total = tally([], [], every=[], texts=[], conversations=0, turns=0, altered=0, escaped=0)
    samples: list[Example] = []
    refused, too_long, dismissed = Findings(), Findings(), Findings()

    def kept() -> Iterator["pa.Table"]:
        for part in frame.progress(found, total=count, label=name):
            total.add(part.counts)
            samples.extend(part.samples[: SAMPLES - len(samples)])
            refused.add(part.findings)
            too_long.add(part.too_long)
            dismissed.add(part.dismissed)
            ledger.writelines(_line(name, line) for line in part.dropped)
            if not refused:
                yield part.table

    with (folder / "ledger.jsonl").open("a", encoding="utf-8", newline="\n") as ledger:
        writers.stream_parquet(folder / f"{name}.parquet", kept(), example_schema())
    rows = total.counts["conversations"]
    if over := share_findings(name, rows, total.dropped, max_drop_share):
        refused = together(over, refused, dismissed)
    if refused or too_long:
        raise (refused or too_long).error()
    report = summarise(total, samples, tokenizer=tokenizer)
    if not report["kept"] and (report["rows_in"] or name == "train"):
        raise InputError(nothing_left(name, rows, total.dropped))
    return report


def _line(split: str, dropped: Dropped) -> str:
    fields = {name: getattr(dropped, name) for name in Dropped.__slots__}
    return writers.canonical_json({"split": split, **fields}, indent=None)


def _workers() -> int:
    """Processes to use: HASHTUNE_PROCESSES, else one for each core that this process may use."""
    value = os.environ.get("HASHTUNE_PROCESSES", "")
    if value and not (value.isdecimal() and int(value)):
        said = f"HASHTUNE_PROCESSES is {value!r}, expected a whole number from 1"
        raise InputError(Finding("processes", said))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    return int(value) if value else cores


def _close(reports: dict[str, dict[str, Any]], stops: StopSet, seconds: float) -> None:
    tokens = sum(report["tokens"] for report in reports.values())
    measured = {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds)}
    frame.write_machine("tokenize", measured, belongs_to=OUT / "train.parquet")
    counts = ("kept", "dropped", "cut", "straddling_rows")
    keys = (*counts, "tokens", "trained_tokens", "trained_share")
    table: dict[str, object] = {}
    for name, report in reports.items():
        table |= {f"{name} {key}": report[key] for key in keys} | {f"{name} lost": _lost(report)}
    frame.closing_table("tokenize", {**table, "stops": " ".join(map(repr, stops.texts))})


def _lost(report: Mapping[str, Any]) -> str:
    """What the limit and the policies took: "1 example, 13 tokens (56.5 % of 23)"."""
    count, lost = report["examples"]["in"] - report["examples"]["kept"], report["tokens_lost"]
    if not lost:
        return "none"
    every = lost + report["tokens"]
    share = f"{100 * lost / every:.1f} % of {every}"
    examples, tokens = "example" + "s" * (count != 1), "token" + "s" * (lost != 1)
    return f"{count} {examples}, {lost} {tokens} ({share})"


if __name__ == "__main__":
    frame.main("tokenize", run)
