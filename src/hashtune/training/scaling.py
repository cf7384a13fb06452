"""The loss scale of fp16: gradients too small for its exponent are multiplied on their way back.

torch.amp.GradScaler: 65,536 at first, halved by a step whose gradients overflow, doubled after
2,000 steps without. Such a step is skipped by the guard as any other that is not finite.
"""

from typing import Any

from torch import Tensor
from torch.amp import GradScaler

from hashtune.training.model import Trainee


def build_scaler(trainee: Trainee, state: dict[str, Any] | None) -> GradScaler | None:
    """The scaler of an fp16 run, continued from `state` if there is one; else None."""
    if trainee.precision != "fp16":
        return None
    scaler = GradScaler(trainee.device.type)
    if state is not None:
        scaler.load_state_dict(state)
    return scaler


def scaler_state(scaler: GradScaler | None) -> dict[str, Any] | None:
    """What `build_scaler` continues from, as JSON keeps it: powers of two, and a count."""
    state: dict[str, Any] | None = None if scaler is None else scaler.state_dict()
    return state


def scaled(loss: Tensor, scaler: GradScaler | None) -> Tensor:
    """The loss to go backward from."""
    product: Tensor = loss if scaler is None else scaler.scale(loss)
    return product
