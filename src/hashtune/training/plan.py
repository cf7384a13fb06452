"""What the loop is given: the packing plan and settings that fit it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.lengths import keep_findings, length_findings
from hashtune.spec.schema import Batch, Checkpoint, Optim, Schedule

NO_TARGETS = "no-trained-token"
PACK = "build/pack"


@dataclass(frozen=True, slots=True)
class Plan:
    """The packing plan in memory. steps[i] holds the row numbers of step i + 1."""

    rows: Sequence[Row]
    steps: Sequence[Sequence[int]]
    eval_rows: Sequence[Row]


def check_plan(plan: Plan, schedule: Schedule, checkpoint: Checkpoint) -> None:
    """Raise InputError for settings that this plan cannot hold, and for a plan without targets."""
    total = len(plan.steps)
    findings = [
        *length_findings(schedule, total=total),
        *_no_eval(plan, checkpoint),
        *keep_findings(schedule, checkpoint, total=total),
        *_without_targets(plan),
    ]
    if findings:
        raise InputError(findings)


def _no_eval(plan: Plan, checkpoint: Checkpoint) -> Iterator[Finding]:
    if checkpoint.early_stop_patience is not None and not plan.eval_rows:
        message = "is set, and the plan has no eval row to measure a loss on"
        field = "checkpoint.early_stop_patience"
        yield Finding("no-eval", message, file="params.yaml", field=field, fix="set it to null")


def _without_targets(plan: Plan) -> Iterator[Finding]:
    """pack writes no row without a target; what lies in build/pack may be older, or another's."""
    if not plan.steps:
        message, fix = "the plan has no step", "`dvc repro -f -s pack` plans anew"
        yield Finding(NO_TARGETS, message, file=f"{PACK}/steps.parquet", fix=fix)
    for number, rows in enumerate(plan.steps, start=1):
        if not targets([plan.rows[row] for row in rows]):
            yield step_without_targets(number)
    if plan.eval_rows and not targets(plan.eval_rows):
        yield eval_without_targets()


def step_without_targets(number: int) -> Finding:
    """For a step, from 1, whose rows have no trained token: it has no loss, and is no step whose
    loss is not finite."""
    message = f"step {number} has no trained token"
    fix = f"`hashtune step {number}` lists its rows; `dvc repro -f -s pack` lays them anew"
    return Finding(NO_TARGETS, message, file=f"{PACK}/steps.parquet", fix=fix)


def eval_without_targets() -> Finding:
    """For eval rows without a trained token in all: their mean loss does not exist."""
    message = "no eval row has a trained token, so that there is no eval loss"
    fix = "eval data with answers; `hashtune inspect --split eval` shows what is trained in them"
    return Finding(NO_TARGETS, message, file=f"{PACK}/eval.parquet", field="data.eval", fix=fix)


def targets(rows: Sequence[Row]) -> int:
    """Trained tokens of the rows: labels that some state predicts (a row's first has none)."""
    return sum(label != IGNORE_INDEX for row in rows for label in row.labels[1:])


def row_to_prove(rows: Iterable[Row]) -> Row:
    """The first row with a document of two tokens: of one alone nothing is trained, and attention
    over one key does not feel its query."""
    return next(row for row in rows if max(row.lengths) > 1)


def worst_rows(rows: Sequence[Row], batch: Batch) -> list[Row]:
    """What the plan reckons with: the longest row as often as a micro-batch takes rows, with as
    many targets at its end as the row with the most has. With accumulation two micro-batches: the
    second one's activations lie beside the first one's gradients."""
    longest = max(rows, key=lambda row: (len(row.input_ids), -row.row))
    most = max(targets([row]) for row in rows)
    start = max(1, len(longest.input_ids) - most)
    labels = [IGNORE_INDEX] * start + longest.input_ids[start:]
    return [replace(longest, labels=labels)] * (batch.micro * min(2, batch.grad_accum))


@dataclass(frozen=True, slots=True)
class Settings:
    """The spec sections the loop reads, the seed of its noise, the run folder, the identity that
    checkpoints carry and what made it up, and the code and libraries that run."""

    optim: Optim
    schedule: Schedule
    batch: Batch
    checkpoint: Checkpoint
    seed: int
    run: Path
    identity: str
    spec: Any
    code: Any
