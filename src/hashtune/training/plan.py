"""What the loop is given: the packing plan and settings that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.spec.schema import Batch, Checkpoint, Optim, Schedule
from hashtune.training.schedules import length_findings, stable_updates


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
    findings += _keep_findings(schedule, checkpoint, total=len(plan.steps))
    if findings:
        raise InputError(findings)


def _keep_findings(schedule: Schedule, checkpoint: Checkpoint, *, total: int) -> list[Finding]:
    """A state can be kept where a branch can begin: one update at least, none of the decay."""
    stable, step = stable_updates(schedule, total=total), checkpoint.keep_stable
    if step is None or step in stable:
        return []
    message = f"step {step} does not lie in the stable phase, which is that of steps "
    message += f"{max(1, stable.start)} to {stable.stop - 1}" if stable else "of no run like this"
    field, fix = "checkpoint.keep_stable", "a step of the stable phase, or null"
    return [Finding("keep-stable", message, file="params.yaml", field=field, fix=fix)]


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
