"""Which conversations, after validation, cleaning, deduplication, mixture and split?

Reads the data files that the spec pins (verified before they are parsed; a URL is fetched once
per machine into the store) and the base's own
answers, build/replay/answers.jsonl. Writes build/prepare/{train,eval,test}.parquet, one row per
conversation, build/prepare/ledger.jsonl, one line per dropped row, and reports/prepare.json. With
any finding nothing is written. Messages lie in an unnamed file in build/ meanwhile, so that memory
holds hashes and numbers of a row only; bench/prepare_memory.py measures bytes and seconds a row.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hashtune import frame, writers
from hashtune.data.assemble import Prepared, Settings, assemble
from hashtune.data.cleaning import Policy
from hashtune.data.filters import check_limits
from hashtune.data.leakage import Item
from hashtune.data.mixture import REPLAY
from hashtune.data.patterns import load_patterns
from hashtune.data.row_rules import HELD_OUT, RowRules, Ruled, RuledFile
from hashtune.data.sources import DataFile, Loaded, load, load_questions, unique_names
from hashtune.data.spill import Spill
from hashtune.data.table import Table
from hashtune.errors import Finding, InputError
from hashtune.records import conversation_schema
from hashtune.spec.rows import REMOTE, address_fault, remote_scheme
from hashtune.spec.schema import HeldOut, Source, Spec
from hashtune.store.remote import fetch

if TYPE_CHECKING:
    import pyarrow as pa

ANSWERS = "build/replay/answers.jsonl"
OUT = Path("build/prepare")
CHUNK_ROWS = 256


def run() -> None:
    """Run the stage in the current folder; InputError lists every finding of every file."""
    spec = frame.read_spec("data", "cleaning", "regression")
    with Spill(OUT.parent) as spill:
        ruled = Ruled(Table(spill))
        loaded, questions = _read(spec, ruled)
        frame.say(f"  {len(ruled.table)} rows read, looking for leaks")
        prepared = assemble(loaded, ruled, questions, _settings(spec))
        _refuse(prepared.findings, prepared.more)
        _write(prepared)


def _read(spec: Spec, ruled: Ruled) -> tuple[dict[str, Loaded], dict[str, list[Item]]]:
    """Read all files, the rows into the table; the files by name and the suites' questions."""
    files, suites = list(_files(spec)), _suite_files(spec)
    findings = unique_names(files[: len(spec.data.sources)], reserved={REPLAY, *HELD_OUT})
    findings += unique_names(suites, reserved=set())
    findings += check_limits(spec.cleaning.filters)
    patterns, of_patterns = load_patterns(spec.cleaning.patterns, Path())
    rules = RowRules(spec.cleaning.normalise, spec.cleaning.filters, patterns)
    policy = Policy(spec.cleaning.on_bad_row, spec.cleaning.max_drop_share)
    loaded: dict[str, Loaded] = {}
    more: Counter[str] = Counter()
    for file in frame.progress(files, total=len(files), label="reading"):
        here = _fetched(file)
        if isinstance(here, Finding):
            findings.append(here)
            continue
        sink = RuledFile(ruled, rules, file)
        loaded[file.name] = load(here, Path(), policy, sink)
        sink.close()
        findings += loaded[file.name].findings
        more += loaded[file.name].more
    questions: dict[str, list[Item]] = {}
    for suite in suites:
        questions[suite.name], found = load_questions(suite, Path())
        findings += found
    _refuse(findings + of_patterns, more)
    return loaded, questions


def _files(spec: Spec) -> Iterator[DataFile]:
    """Sources first: of two equal conversations the first one stays."""
    for index, source in enumerate(spec.data.sources):
        field = f"data.sources[{index}]"
        yield _declared(source.name, source.uri, source, field)
    if spec.data.replay.uri is not None and spec.data.replay.share > 0:
        yield DataFile(REPLAY, ANSWERS, None, "messages", "data.replay", pinned=False)
    if spec.data.eval.uri is not None:
        yield _declared("eval", spec.data.eval.uri, spec.data.eval, "data.eval")
    if spec.data.test.uri is not None:
        yield _declared("test", spec.data.test.uri, spec.data.test, "data.test")


def _declared(name: str, uri: str, entry: Source | HeldOut, field: str) -> DataFile:
    return DataFile(
        name,
        uri,
        entry.sha256,
        entry.schema_,
        field,
        format=entry.format,
        fields=entry.fields,
    )


def _fetched(file: DataFile) -> DataFile | Finding:
    """The file as it is, or with the path in the store where a URL's content lies."""
    if remote_scheme(file.uri) not in REMOTE or file.sha256 is None:
        return file
    if fault := address_fault(file.uri):  # `-s` skips the spec stage, which looks too
        rule, message, fix = fault
        return Finding(rule, message, field=f"{file.field}.uri", fix=fix)
    path = fetch(file.uri, file.sha256, field=file.field, say=frame.say)
    return path if isinstance(path, Finding) else replace(file, path=path)


def _suite_files(spec: Spec) -> list[DataFile]:
    return [
        DataFile(suite.name, suite.uri, suite.sha256, "messages", f"regression.suites[{index}]")
        for index, suite in enumerate(spec.regression.suites)
    ]


def _settings(spec: Spec) -> Settings:
    return Settings(
        deduplicate=spec.cleaning.deduplicate == "exact",
        near_duplicates=spec.cleaning.near_duplicates,
        balance=spec.cleaning.balance,
        weights={source.name: source.weight for source in spec.data.sources},
        max_rows={
            source.name: smaller(source.max_rows, spec.data.max_rows)
            for source in spec.data.sources
        },
        replay_share=spec.data.replay.share,
        fractions={
            "eval": spec.data.eval.fraction if spec.data.eval.uri is None else None,
            "test": spec.data.test.fraction if spec.data.test.uri is None else None,
        },
        held_out_rows={"eval": spec.data.eval.max_rows, "test": spec.data.test.max_rows},
        leakage_ngram=spec.cleaning.leakage_ngram,
        leakage_near=spec.cleaning.leakage_near,
        leakage_groups=spec.cleaning.leakage_groups,
        leakage_action=spec.cleaning.leakage_action,
        leakage_max_share=spec.cleaning.leakage_max_share,
    )


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two limits; None is no limit."""
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits, default=None)


def _refuse(findings: list[Finding], more: Counter[str]) -> None:
    if findings:
        raise InputError(findings, more)


def _write(prepared: Prepared) -> None:
    with writers.staged_directory(OUT) as folder:
        for name in prepared.splits:
            path = folder / f"{name}.parquet"
            writers.stream_parquet(path, _tables(prepared, name), conversation_schema())
        ledger = (asdict(row) for row in prepared.table.ledger())
        writers.stream_jsonl(folder / "ledger.jsonl", ledger)
    frame.write_report("prepare", prepared.report)
    splits = prepared.report["splits"]
    facts: dict[str, object] = {f"{name} conversations": rows for name, rows in splits.items()}
    facts["dropped"] = sum(prepared.report["rows"]["dropped"].values())
    facts["replay share"] = prepared.report["replay"]["share"]
    for name, leak in prepared.report["leakage"].items():
        leaked = leak["exact"] + leak["ngram"] + leak["near"]
        facts[f"leaked from {name}"] = f"{leaked} of {leak['items']}"
    frame.closing_table("prepare: done", facts)


def _tables(prepared: Prepared, name: str) -> Iterator["pa.Table"]:
    import pyarrow as pa

    rows = prepared.written(name)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield pa.Table.from_pylist(chunk, schema=conversation_schema())


if __name__ == "__main__":
    frame.main("prepare", run)
