"""Which conversations, after validation, cleaning, deduplication, mixture and split?

Reads the data files that the spec pins (verified before they are parsed; a URL is fetched once
per machine into the store) and the base's own
answers, build/replay/answers.jsonl. Writes build/prepare/{train,eval,test}.parquet, one row per
conversation, build/prepare/ledger.jsonl, one line per dropped row, and reports/prepare.json. With
any finding nothing is written. Cost: linear; 100,000 rows of 120 words take about 33 s of
one core and 0.7 GB.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from hashtune import frame, writers
from hashtune.data.assemble import HELD_OUT, Prepared, Settings, assemble
from hashtune.data.cleaning import Policy
from hashtune.data.leakage import Item
from hashtune.data.mixture import REPLAY
from hashtune.data.patterns import load_patterns
from hashtune.data.row_rules import RowRules
from hashtune.data.schemas import as_row
from hashtune.data.sources import DataFile, Loaded, load, load_questions, unique_names
from hashtune.errors import Finding, InputError
from hashtune.records import conversation_schema
from hashtune.spec.rows import REMOTE, address_fault, remote_scheme
from hashtune.spec.schema import HeldOut, Source, Spec
from hashtune.store.remote import fetch

ANSWERS = "build/replay/answers.jsonl"
OUT = Path("build/prepare")


def run() -> None:
    """Run the stage in the current folder; InputError lists every finding of every file."""
    spec = frame.read_spec("data", "cleaning", "regression")
    files, suites = list(_files(spec)), _suite_files(spec)
    findings = unique_names(files[: len(spec.data.sources)], reserved={REPLAY, *HELD_OUT})
    findings += unique_names(suites, reserved=set())
    policy = Policy(spec.cleaning.on_bad_row, spec.cleaning.max_drop_share)
    loaded: dict[str, Loaded] = {}
    for file in frame.progress(files, total=len(files), label="reading"):
        here = _fetched(file)
        if isinstance(here, Finding):
            findings.append(here)
            continue
        loaded[file.name] = load(here, Path(), policy)
        findings += loaded[file.name].findings
    questions: dict[str, list[Item]] = {}
    for suite in suites:
        questions[suite.name], found = load_questions(suite, Path())
        findings += found
    patterns, found = load_patterns(spec.cleaning.patterns, Path())
    _refuse(findings + found)
    rules = RowRules(spec.cleaning.normalise, spec.cleaning.filters, patterns)
    frame.say(f"  {sum(file.rows for file in loaded.values())} rows read, looking for leaks")
    prepared = assemble(loaded, questions, _settings(spec, rules))
    _refuse(prepared.findings)
    _write(prepared)


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


def _settings(spec: Spec, rules: RowRules) -> Settings:
    return Settings(
        rules=rules,
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
        leakage_max_share=spec.cleaning.leakage_max_share,
    )


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two limits; None is no limit."""
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits, default=None)


def _refuse(findings: list[Finding]) -> None:
    if findings:
        raise InputError(findings)


def _write(prepared: Prepared) -> None:
    schema = conversation_schema()
    for name, conversations in prepared.splits.items():
        rows = [as_row(conversation) for conversation in conversations]
        writers.write_parquet(OUT / f"{name}.parquet", rows, schema)
    writers.write_jsonl(OUT / "ledger.jsonl", [asdict(row) for row in prepared.ledger])
    frame.write_report("prepare", prepared.report)
    facts: dict[str, object] = {
        f"{name} conversations": len(rows) for name, rows in prepared.splits.items()
    }
    facts["dropped"] = len(prepared.ledger)
    facts["replay share"] = prepared.report["replay"]["share"]
    for name, leak in prepared.report["leakage"].items():
        leaked = leak["exact"] + leak["ngram"] + leak["near"]
        facts[f"leaked from {name}"] = f"{leaked} of {leak['items']}"
    frame.closing_table("prepare: done", facts)


if __name__ == "__main__":
    frame.main("prepare", run)
