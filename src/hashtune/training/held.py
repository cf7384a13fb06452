"""The tensors that a model and an optimizer hold between two steps, by the plan's buckets."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hashtune.training.model import Trainee

QUANTISER = "bitsandbytes"  # keeps scales beside a weight, in objects of its own


def modules_of(trainee: Trainee) -> Iterator[nn.Module]:
    """Every module of the model, those of the adapter too."""
    yield from (trainee.peft.get_base_model() if trainee.full else trainee.peft).modules()


def model_tensors(trainee: Trainee) -> Iterator[Tensor]:
    """Every parameter and buffer, and what a quantised weight is unpacked with; some twice."""
    for module in modules_of(trainee):
        for value in (*module._parameters.values(), *module._buffers.values()):
            if value is not None:
                yield value
                yield from _beside(vars(value).values())
        yield from _beside(vars(module).values())


def _beside(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value).__module__.startswith(QUANTISER):
            yield from _beside(vars(value).values())


def optimizer_state(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Every tensor of its state."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages below these tensors, each counted once."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def static_bytes(trainee: Trainee, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Weights, adapter and optimizer in bytes; full fine-tuning has no adapter."""
    trained = list(trainee.parameters.values())
    known = {parameter.untyped_storage()._cdata for parameter in trained}
    rest = [t for t in model_tensors(trainee) if t.untyped_storage()._cdata not in known]
    state = {"optimizer": storage_bytes(optimizer_state(optimizer))}
    if trainee.full:
        return {"weights": storage_bytes([*trained, *rest]), **state}
    return {"weights": storage_bytes(rest), "adapter": storage_bytes(trained), **state}


def gradient_bytes(trainee: Trainee) -> int:
    """Bytes of the gradients that are there."""
    return storage_bytes(p.grad for p in trainee.parameters.values() if p.grad is not None)
