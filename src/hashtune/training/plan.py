"""What the loop is given (the packing plan, its settings) and what it measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.records import Row
from hashtune.spec.schema import Batch, Checkpoint, Optim, Schedule


@dataclass(frozen=True, slots=True)
class Plan:
    """The packing plan in memory. steps[i] holds the row numbers of step i + 1."""

    rows: Sequence[Row]
    steps: Sequence[Sequence[int]]
    eval_rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Settings:
    """The spec sections the loop reads, the run folder, and the identity checkpoints carry."""

    optim: Optim
    schedule: Schedule
    batch: Batch
    checkpoint: Checkpoint
    run: Path
    identity: str
    spec: Any


@dataclass(slots=True)
class Meter:
    """What this machine measured; never part of an output."""

    seconds: float = 0.0
    tokens: int = 0
    trained_tokens: int = 0
    steps: int = 0
    eval_seconds: float = 0.0
    first_step: int = 1
