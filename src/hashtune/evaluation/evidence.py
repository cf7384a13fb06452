"""The evidence a gate decides on: paired scores of base and adapter, checked before any statistic.

A difference of means says something only if both models answered the same items under the same
conditions, so everything that could break the pairing is refused here, all of it at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Evaluation, Regression

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """What one model did: rows of task.jsonl and suites.jsonl, and the conditions it ran under
    (pins, precision, batch plan), apart for task and suites."""

    task: Rows
    suites: Rows
    task_conditions: Mapping[str, Any]
    suite_conditions: Mapping[str, Any]
    task_noise: float = 0.0  # how far this model's own scores move in other batches (noise.py)
    suite_noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Base and adapter on the same items."""

    base: Side
    adapter: Side


def task_conditions(evaluation: Evaluation, test_sha256: str) -> dict[str, Any]:
    """What must be the same for base and adapter on the test items."""
    return {"test_sha256": test_sha256, **evaluation.model_dump()}


def suite_conditions(evaluation: Evaluation, regression: Regression) -> dict[str, Any]:
    """What must be the same for base and adapter on the suites."""
    return {
        "engine": evaluation.engine,
        "noise_items": evaluation.noise_items,
        "base_precision": evaluation.base_precision,
        "batch_size": evaluation.batch_size,
        **regression.model_dump(),
    }


def check_evidence(evidence: Evidence) -> None:
    """Refuse evidence that proves nothing.

    Raises:
        InputError: no task items; other items, fields or conditions on the two sides; scores
            that are no number in [0, 1]; an adapter that changed no output on any common prompt.
    """
    base, adapter = evidence.base, evidence.adapter
    findings = _condition_findings("task", base.task_conditions, adapter.task_conditions)
    findings += _condition_findings("suites", base.suite_conditions, adapter.suite_conditions)
    findings += _item_findings("task", base.task, adapter.task)
    findings += _item_findings("suites", base.suites, adapter.suites)
    if not base.task and not adapter.task:
        findings.append(Finding("empty", "there are no task items to judge", field="task"))
    for name, side in (("base", base), ("adapter", adapter)):
        for row in side.task:
            findings += _score_findings(row, row["scores"], where=f"task of {name}")
            findings += _score_findings(row, row["majority"], where=f"task of {name}")
        for row in side.suites:
            told = {"score": row["score"], "chance": row["chance"]}
            findings += _score_findings(row, told, where=f"suites of {name}")
    if not findings:
        findings += _field_findings(base.task, adapter.task) + _effect_findings(base, adapter)
    if findings:
        raise InputError(findings)


def _condition_findings(
    part: str, base: Mapping[str, Any], adapter: Mapping[str, Any]
) -> list[Finding]:
    return [
        Finding(
            "other-conditions",
            f"the base ran with {base.get(key)!r}, the adapter with {adapter.get(key)!r}",
            field=f"{part}.{key}",
            fix="dvc repro, so that both are measured again",
        )
        for key in sorted({*base, *adapter})
        if base.get(key) != adapter.get(key)
    ]


def _item_findings(part: str, base: Rows, adapter: Rows) -> list[Finding]:
    if len(base) != len(adapter):
        message = f"the base answered {len(base)} items, the adapter {len(adapter)}"
        return [Finding("other-items", message, field=part)]
    return [
        Finding(
            "other-items",
            f"the base answered {a['id']!r}, the adapter {b['id']!r}",
            field=f"{part}[{index}]",
        )
        for index, (a, b) in enumerate(zip(base, adapter, strict=True))
        if a["id"] != b["id"]
    ]


def _score_findings(
    row: Mapping[str, Any], scores: Mapping[str, Any], *, where: str
) -> list[Finding]:
    return [
        Finding("score", f"{score!r} is no score in [0, 1]", field=f"{where}: {row['id']}.{field}")
        for field, score in scores.items()
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1
    ]


def _field_findings(base: Rows, adapter: Rows) -> list[Finding]:
    """Every row must have the same score fields as the first one of the base."""
    fields = sorted(base[0]["scores"])
    return [
        Finding(
            "other-fields",
            f"scores {', '.join(sorted(row[key]))} instead of {', '.join(fields)}",
            field=f"{name}: {row['id']}.{key}",
        )
        for name, rows in (("base", base), ("adapter", adapter))
        for row in rows
        for key in ("scores", "majority")
        if sorted(row[key]) != fields
    ]


def _effect_findings(base: Side, adapter: Side) -> list[Finding]:
    """Equal outputs on every prompt that both were given: the adapter was not applied, or is
    zero. Task prompts differ where the base has an instruction, so they are compared by hash."""
    pairs = [
        (a["answer"], b["answer"])
        for a, b in zip(base.task, adapter.task, strict=True)
        if a["prompt"] == b["prompt"]
    ]
    pairs += [(a["output"], b["output"]) for a, b in zip(base.suites, adapter.suites, strict=True)]
    if not pairs or any(a != b for a, b in pairs):
        return []
    return [
        Finding(
            "no-effect",
            f"the adapter has no effect: all {len(pairs)} outputs equal the base's",
            fix="look at reports/train.json: was anything trained, and did the adapter load?",
        )
    ]
