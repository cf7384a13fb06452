"""What the loop is given: the packing plan and settings that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.spec.schema import Batch, Checkpoint, Optim, Schedule
from hashtune.training.schedules import length_findings


@dataclass(frozen=True, slots=True)
class Plan:
    """The packing plan in memory. steps[i] holds the row numbers of step i + 1."""

    rows: Sequence[Row]
    steps: Sequence[Sequence[int]]
    eval_rows: Sequence[Row]


def check_plan(plan: Plan, schedule: Schedule, checkpoint: Checkpoint) -> None:
    """Raise InputError for settings that this plan cannot hold."""
    findings = length_findings(schedule, total=len(plan.steps))
    if checkpoint.early_stop_patience is not None and not plan.eval_rows:
        message = "is set, and the plan has no eval row to measure a loss on"
        field = "checkpoint.early_stop_patience"
        findings.append(
            Finding("no-eval", message, file="params.yaml", field=field, fix="set it to null")
        )
    if findings:
        raise InputError(findings)


@dataclass(frozen=True, slots=True)
class Settings:
    """The spec sections the loop reads, the seed of its noise, the run folder, and the identity
    that checkpoints carry."""

    optim: Optim
    schedule: Schedule
    batch: Batch
    checkpoint: Checkpoint
    seed: int
    run: Path
    identity: str
    spec: Any
