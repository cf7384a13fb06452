"""What every side is told, and the arithmetic that all share."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BATCH = 4
LR, RANK, ALPHA, CLIP = 2e-4, 16, 32.0, 1.0
# rows of a micro-batch, and micro-batches of a step. A packed row of 1,024 tokens holds about as
# many trained tokens as BATCH rows.
LAYOUTS = {"packed": (1, 1), "unpacked": (1, BATCH), "micro4": (BATCH, 1), "grouped": (BATCH, 1)}


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement. `rows` is the file that the side `rows` wrote: ids and labels."""

    base: str
    rows: str
    layout: str
    precision: str
    threads: int
    warmup: int
    max_length: int

    def text(self) -> str:
        """As an argument of a command."""
        return json.dumps(asdict(self))


def read_job(text: str) -> Job:
    """A job from the argument of a command."""
    return Job(**json.loads(text))


def read_rows(job: Job) -> list[dict[str, Any]]:
    """The rows in file order."""
    rows: list[dict[str, Any]] = json.loads(Path(job.rows).read_text(encoding="utf-8"))
    return rows


def order(lengths: Sequence[int], layout: str) -> list[int]:
    """Row numbers as a layout takes them.

    Grouped: sorted by length, cut into batches, batches shuffled. Samplers do so within groups of
    many batches, which a short run would not fill.
    """
    numbers = list(range(len(lengths)))
    if layout != "grouped":
        return numbers
    numbers.sort(key=lengths.__getitem__)
    groups = [numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH)]
    random.Random(0).shuffle(groups)
    return [number for group in groups for number in group]


def rate(steps: Sequence[tuple[float, int]], *, warmup: int) -> float:
    """Tokens per second after the warm-up, from the second in which each step ended and its tokens
    without padding."""
    tokens = sum(count for _, count in steps[warmup:])
    return tokens / (steps[-1][0] - steps[warmup - 1][0])
