"""What every side is told, and the arithmetic that all share."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Kernels = Literal["plain", "fused"]
Checkpointing = Literal["none", "selective", "full"]
Device = Literal["cpu", "cuda"]
BATCH = 4
LR, RANK, ALPHA, CLIP = 2e-4, 16, 32.0, 1.0
# rows of a micro-batch, and micro-batches of a step. A packed row of 1,024 tokens holds about as
# many trained tokens as BATCH rows.
LAYOUTS = {"packed": (1, 1), "unpacked": (1, BATCH), "micro4": (BATCH, 1), "grouped": (BATCH, 1)}
PAIRS = "pairs"  # of ours alone
SIZES = LAYOUTS | {PAIRS: (2, BATCH // 2)}


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement. `rows` is the file that the side `rows` wrote: ids and labels."""

    base: str
    rows: str
    layout: str
    precision: str
    kernels: Kernels
    checkpointing: Checkpointing
    threads: int
    warmup: int
    max_length: int
    device: Device

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


def rates(
    ends: Sequence[tuple[float, float]], tokens: Sequence[int], *, warmup: int
) -> dict[str, float]:
    """Tokens per second after the warm-up, of wall and of CPU time.

    Args:
        ends: seconds on the clock and of CPU time at which each step ended.
        tokens: each step's tokens without padding.
        warmup: steps that do not count, at least 1.
    """
    counted = sum(tokens[warmup:])
    wall, cpu = (last - first for first, last in zip(ends[warmup - 1], ends[-1], strict=True))
    return {"tokens_per_second": counted / wall, "tokens_per_cpu_second": counted / cpu}
