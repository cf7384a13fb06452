"""Optimizers over the trainable parameters; weight decay spares vectors (biases, norms)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hashtune.spec.schema import Optim


def build_optimizer(parameters: Mapping[str, nn.Parameter], optim: Optim) -> torch.optim.Optimizer:
    """The optimizer named in the spec.

    Args:
        parameters: name to trainable parameter; the order fixes the order of updates.
        optim: lr here is the peak; the loop sets each group's lr before each update.
    """
    matrices = [p for p in parameters.values() if p.ndim >= 2]
    vectors = [p for p in parameters.values() if p.ndim < 2]
    groups = [
        {"params": group, "weight_decay": decay}
        for group, decay in ((matrices, optim.weight_decay), (vectors, 0.0))
        if group
    ]
    if optim.name == "adamw":
        return torch.optim.AdamW(
            groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=optim.eps
        )
    return torch.optim.SGD(groups, lr=optim.lr, momentum=optim.beta1)


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Every state tensor of the optimizer as "<slot>.<parameter name>"."""
    tensors = {}
    for name, parameter in parameters.items():
        for slot, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{slot}.{name}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Put saved state tensors back, on each parameter's device.

    Raises KeyError when a tensor belongs to a parameter that is not trained here.
    """
    for key, value in tensors.items():
        slot, _, name = key.partition(".")
        parameter = parameters[name]
        home = "cpu" if slot == "step" else parameter.device
        optimizer.state[parameter][slot] = value.to(home).clone()
