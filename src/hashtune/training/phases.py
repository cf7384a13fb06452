"""Where a run is: its phase, step and micro-batch, for who measures memory or names a failure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hashtune.records import Row

Phase = Literal[
    "load",
    "proof",
    "resume",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "evaluation",
    "save",
]
SetPhase = Callable[[Phase], None]


def nobody(phase: Phase) -> None:
    """Hears of a phase and does nothing."""


@dataclass(slots=True)
class Position:
    """Where a run is.

    phase: what is being done. step: from 1; 0 before the first. batches: the micro-batches of the
    step, or of the eval rows, in their order. begun: how many of the step's had their forward.
    """

    phase: Phase = "load"
    step: int = 0
    batches: Sequence[Sequence[Row]] = ()
    begun: int = 0

    def enter(self, phase: Phase) -> None:
        """What follows belongs to this phase."""
        self.phase = phase
        self.begun += phase == "forward"

    def take(self, phase: Phase, batches: Sequence[Sequence[Row]], *, step: int) -> None:
        """A step, or the evaluation after it, begins with these micro-batches."""
        self.enter(phase)
        self.step, self.batches, self.begun = step, batches, 0

    @property
    def rows(self) -> Sequence[Row]:
        """The micro-batch at hand; in an evaluation, which counts none, the longest one."""
        if self.begun:
            return self.batches[min(self.begun, len(self.batches)) - 1]
        return max(self.batches, key=_tokens, default=())


def _tokens(rows: Sequence[Row]) -> int:
    """Of a micro-batch, padding included."""
    return len(rows) * max(len(row.input_ids) for row in rows)
