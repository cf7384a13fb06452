"""Memory that runs out in training: a refusal that says where, what is to blame, what to change.

    load        weights                     backward     activations, kept for it
    proof       activations of one row      optimizer    state: it is made in the first update
    resume      optimizer state             evaluation   the micro-batch of eval rows
    forward     activations                 save         the copy of adapter and state
    loss        logits of a chunk

On a CPU Linux often lets a process take more than there is and kills it later (exit by signal 9):
then there is nobody left to say so (docs/failures.md).
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from safetensors import SafetensorError

from hashtune.errors import Finding, InputError
from hashtune.training.first_changes import Blamed, Changes
from hashtune.training.memory_probe import Measured
from hashtune.training.phases import Phase, Position
from hashtune.training.planned import GB, Planned
from hashtune.training.rates import peak_memory_gb

# torch's CPU allocator has no class of its own; cuBLAS, cuDNN and mmap have their own words
WORDS = (
    "can't allocate memory",
    "Cannot allocate memory",
    "not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
BLAMED: dict[Phase, tuple[Blamed, str]] = {
    "load": ("weights", "the weights of the base"),
    "proof": ("activations", "the activations of one row"),
    "resume": ("state", "the optimizer's state"),
    "forward": ("activations", "activations"),
    "loss": ("logits", "the logits of a chunk of targets"),
    "backward": ("activations", "activations, which are kept for the backward"),
    "optimizer": ("state", "the state: gradients, and moments that the first update makes"),
    "evaluation": ("evaluation", "the micro-batch of eval rows"),
    "save": ("state", "the copy of adapter and state that is written"),
}
PLACES: dict[Phase, str] = {
    "load": "while the base is loaded",
    "proof": "in a proof beside the steps",
    "resume": "while the state is restored",
    "evaluation": "in the evaluation after step {step}",
    "save": "while the checkpoint of step {step} is written",
}
WITH_ROWS: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer", "evaluation")
BUCKETS: dict[Blamed, tuple[str, ...]] = {
    "weights": ("weights",),
    "state": ("adapter", "gradients", "optimizer"),
    "activations": ("working",),
    "logits": ("working",),
    "evaluation": ("working",),
}


def ran_out(error: BaseException) -> bool:
    """Whether this is memory that ran out, of the host or of a GPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    known = isinstance(error, RuntimeError | SafetensorError)
    return known and any(words in str(error) for words in WORDS)


@dataclass(slots=True)
class Account:
    """What is known of a run's memory while it runs. `probing`: the steps of the probe are taken,
    before step 1."""

    changes: Changes
    position: Position = field(default_factory=Position)
    planned: Planned | None = None
    measured: Measured | None = None
    probing: bool = False

    @contextmanager
    def refusal(self) -> Iterator[None]:
        """Turn memory that runs out into an InputError; other errors pass."""
        try:
            yield
        except (RuntimeError, MemoryError, OSError, SafetensorError) as error:
            if not ran_out(error):
                raise
            raise InputError(self._finding(error)) from error

    @contextmanager
    def probe(self) -> Iterator[None]:
        """What fails meanwhile fails in the probe."""
        self.probing = True
        yield
        self.probing = False

    def _finding(self, error: BaseException) -> Finding:
        blamed, words = BLAMED[self.position.phase]
        message = f"memory ran out {self._place()}: {words}; {self._figures(blamed)}"
        said = " ".join(str(error).split())
        if said:
            message += f" ({said[:200]})"
        fix = self.changes.first(blamed, self.planned.changes if self.planned else ())
        fix += "; with more room and the same spec `dvc repro` continues from the last checkpoint"
        return Finding("out-of-memory", message, field="hardware.memory_gb", fix=fix)

    def _place(self) -> str:
        position = self.position
        place = PLACES.get(position.phase, f"in the {position.phase} of step {{step}}")
        if self.probing:
            return f"in the {position.phase} of the probe before the first step"
        rows = position.rows if position.phase in WITH_ROWS else ()
        if rows:
            named = ", ".join(str(row.row) for row in rows)
            longest = max(len(row.input_ids) for row in rows)
            place += f" (row {named}, {longest} tokens long)"
        return place.format(step=position.step)

    def _figures(self, blamed: Blamed) -> str:
        figures = []
        if self.planned:
            part = sum(self.planned.buckets.get(name, 0) for name in BUCKETS[blamed])
            figures.append(
                f"planned {self.planned.peak / GB:.2f} GB of tensors, {part / GB:.2f} of it there"
            )
        if self.measured:
            figures.append(f"the probe measured {self.measured.peak / GB:.2f} GB")
        return "; ".join([*figures, f"this process had {peak_memory_gb():.2f} GB at most"])
