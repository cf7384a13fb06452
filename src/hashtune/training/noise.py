"""NEFTune: uniform noise on the token embeddings while training (Jain et al. 2023, 2310.05914).

Each document of T tokens and width d gets noise in [-1, 1] times alpha / sqrt(T * d). It is a
function of seed, step and row number alone, so a resumed run draws the same, and neither padding
nor the split into micro-batches changes it. No generator of the process is touched.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hashtune.records import Row
from hashtune.spec.schema import Optim
from hashtune.training.model import Trainee


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one step; `step` is 1-based."""

    alpha: float
    seed: int
    step: int

    def of(self, row: Row, width: int) -> Tensor:
        """Noise for the row's tokens, float32 (T, width)."""
        words = f"{self.seed}/{self.step}/{row.row}".encode()
        number = int.from_bytes(hashlib.sha256(words).digest()[:8], "big", signed=True)
        generator = torch.Generator().manual_seed(number)
        drawn = torch.rand(len(row.input_ids), width, generator=generator) * 2 - 1
        lengths = torch.tensor(row.lengths)
        scale = self.alpha / (lengths * width).sqrt()
        return drawn * torch.repeat_interleave(scale, lengths)[:, None]


def step_noise(optim: Optim, *, seed: int, step: int) -> Noise | None:
    """The noise that the spec wants in this step, or None."""
    return None if optim.neftune_alpha is None else Noise(optim.neftune_alpha, seed, step)


@contextmanager
def on_embeddings(trainee: Trainee, rows: Sequence[Row], noise: Noise | None) -> Iterator[None]:
    """Add the noise to what the embedding layer gives for these rows, padding untouched."""
    if noise is None:
        yield
        return

    def add(_module: object, _inputs: object, output: Tensor) -> Tensor:
        drawn = torch.cat([noise.of(row, output.shape[-1]) for row in rows])
        # one sequence holds all rows, end to end (layouts.join); otherwise each has its own
        used = [len(row.input_ids) for row in rows] if len(output) > 1 else [len(drawn)]
        total = torch.zeros(output.shape)
        for index, part in enumerate(drawn.split(used)):
            total[index, : len(part)] = part
        return output + total.to(output)

    handle = trainee.peft.get_base_model().get_input_embeddings().register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
