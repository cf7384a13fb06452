"""A run as data: what its reports, curves and answers say. What is absent is empty."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.lineage.reports import parse_report
from hashtune.report.sources import Source
from hashtune.writers import read_jsonl

REPORTS = (
    *("gate", "train", "plan", "pack", "tokenize", "baseline", "evaluate", "regress"),
    *("base", "prepare", "release", "spec", "verify"),
)
MACHINE = ("train", "baseline", "evaluate", "regress")
CURVES = "build/train/curves"
TSV = "plots/metrics/"
Points = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Pair:
    """One item as base and adapter answered it. Scores are means over the item's fields; `fields`
    has those of a test item one by one, by their names, base before adapter."""

    id: str
    slice: str
    question: str
    reference: str
    base: str
    adapter: str
    base_score: float
    adapter_score: float
    fields: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a page tells of a run."""

    label: str
    params: Mapping[str, Any]
    reports: Mapping[str, Any]
    machine: Mapping[str, Any]
    curves: Mapping[str, Points]
    task: list[Pair] = field(default_factory=list)
    suites: list[Pair] = field(default_factory=list)
    hashes: list[tuple[str, str, str]] = field(default_factory=list)
    entry: Mapping[str, Any] = field(default_factory=dict)

    def figure(self, report: str, dotted: str) -> Any:
        """The value at a dotted key of a report, or None."""
        value: Any = self.reports.get(report)
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def read_run(source: Source) -> Run:
    """Read a run; the questions of test items come from the test split, where it is there.

    Raises:
        InputError: every report that is none.
    """
    from hashtune.lineage.lock import read_stages

    lock = source.text("dvc.lock")
    stages = read_stages(lock) if lock else {}
    entry = source.output("build/release").get("entry.json")
    return Run(
        label=source.label,
        params=_params(source),
        reports=_json(source, "reports", REPORTS),
        machine=_current(source, _json(source, "reports/machine", MACHINE)),
        curves=_curves(source.output(CURVES)),
        task=_task(source),
        suites=_suites(source),
        hashes=[
            (name, str(out["path"]), str(out["md5"]))
            for name, stage in stages.items()
            for out in stage.get("outs", ())
        ],
        entry=json.loads(entry.read_text(encoding="utf-8")) if entry else {},
    )


def _params(source: Source) -> dict[str, Any]:
    """params.yaml by the one loader; {} when absent, InputError when it is no mapping."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    file, fix = "params.yaml", "`git checkout params.yaml`, or `hashtune compose`"
    try:
        params = OmegaConf.to_container(OmegaConf.create(source.text(file) or "{}"))
    except (YAMLError, OmegaConfBaseException) as error:
        raise InputError(Finding("yaml", " ".join(str(error).split()), file, fix=fix)) from error
    if not isinstance(params, dict):
        raise InputError(Finding("yaml", "is no mapping", file, fix=fix))
    return {str(key): value for key, value in params.items()}


def _json(source: Source, folder: str, names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    findings: list[Finding] = []
    for name in names:
        file = f"{folder}/{name}.json"
        data = source.data(file)
        try:
            found |= {} if data is None else {name: parse_report(data, file=file)}
        except InputError as error:
            findings += error.findings
    if findings:
        raise InputError(findings)
    return found


def _current(source: Source, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Without measurements of another run: each names the sha256 of the output it belongs to."""
    from hashtune.writers import sha256_file

    kept = {}
    for name, report in machine.items():
        folder, _, file = str(report.get("output")).rpartition("/")
        found = source.output(folder).get(file)
        if found is not None and sha256_file(found) == report.get("output_sha256"):
            kept[name] = report
    return kept


def _curves(files: Mapping[str, Path]) -> dict[str, Points]:
    """Name ("train/loss") to its points, from dvclive's files."""
    curves: dict[str, Points] = {}
    for name, file in sorted(files.items()):
        if not (name.startswith(TSV) and name.endswith(".tsv")):
            continue
        rows = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")), delimiter="\t")
        metric = name.removeprefix(TSV).removesuffix(".tsv")
        column = metric.rpartition("/")[2]
        curves[metric] = [(int(row["step"]), float(row[column])) for row in rows]
    return curves


def _rows(source: Source, folder: str, name: str) -> dict[str, dict[str, Any]]:
    file = source.output(folder).get(name)
    return {row["id"]: row for row in read_jsonl(file)} if file else {}


def _task(source: Source) -> list[Pair]:
    base = _rows(source, "build/baseline", "task.jsonl")
    adapter = _rows(source, "build/evaluate", "task.jsonl")
    questions = _questions(source)
    return [
        Pair(
            id=name,
            slice="task",
            question=questions.get(name, ""),
            reference=str(row["reference"]),
            base=str(base[name]["answer"]),
            adapter=str(row["answer"]),
            base_score=_mean(base[name]["scores"]),
            adapter_score=_mean(row["scores"]),
            fields={key: (base[name]["scores"][key], row["scores"][key]) for key in row["scores"]},
        )
        for name, row in adapter.items()
        if name in base
    ]


def _suites(source: Source) -> list[Pair]:
    base = _rows(source, "build/baseline", "suites.jsonl")
    adapter = _rows(source, "build/regress", "suites.jsonl")
    questions: dict[str, str] = {}
    for text in _suite_texts(source):
        for line in text.split("\n"):
            if line.strip():
                item = json.loads(line)
                questions[str(item["id"])] = str(item.get("prompt") or item.get("question"))
    return [
        Pair(
            id=name,
            slice=str(row["slice"]),
            question=questions.get(name, ""),
            reference="",
            base=str(base[name]["output"]),
            adapter=str(row["output"]),
            base_score=float(base[name]["score"]),
            adapter_score=float(row["score"]),
        )
        for name, row in adapter.items()
        if name in base
    ]


def _suite_texts(source: Source) -> list[str]:
    suites = _params(source).get("regression", {}).get("suites", ())
    return [text for suite in suites if (text := source.text(str(suite["uri"]))) is not None]


def _questions(source: Source) -> dict[str, str]:
    """Item id to the last user message, from the test split."""
    from hashtune.evaluation.tasks import task_items
    from hashtune.writers import read_parquet

    file = source.output("build/prepare/test.parquet").get("")
    if file is None:
        return {}
    items = task_items(read_parquet(file), file=file.name)
    return {item.id: str(item.prompt[-1]["content"]) for item in items}


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores) if scores else 0.0
