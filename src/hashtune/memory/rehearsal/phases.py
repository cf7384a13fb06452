"""The parts of a training run by which memory is told apart."""

from collections.abc import Callable
from typing import Literal, get_args

Phase = Literal["load", "forward", "loss", "backward", "optimizer", "evaluation", "save"]
PHASES: tuple[Phase, ...] = get_args(Phase)
SetPhase = Callable[[Phase], None]
