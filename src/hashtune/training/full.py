"""Full fine-tuning in training: all weights in fp32, and what must hold of them afterwards.

The weights are their own master copy, as a LoRA adapter is: bf16 and fp16 are autocast over fp32
weights, never a type they are kept in, so that no update is lost to rounding.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hashtune.errors import Finding, InputError

SAMPLES = 3


def train_all(base: Any) -> dict[str, nn.Parameter]:
    """Make every parameter a trained one in fp32; returns them in name order, a tied head once.

    Raises InputError for a quantised base.
    """
    if getattr(base, "is_quantized", False):
        message = "full trains the base's own weights, and those of a quantised base are codes"
        fix = "quantization=none, or method=qlora"
        raise InputError(Finding("contradiction", message, field="quantization.type", fix=fix))
    parameters = dict(sorted(base.named_parameters()))
    for parameter in parameters.values():
        parameter.requires_grad_(True)
        parameter.data = parameter.data.float()
    return parameters


def check_all_moved(tensors: Mapping[str, Tensor], pinned: Mapping[str, Tensor]) -> None:
    """Raise InputError naming weights that are as the pinned base has them. A tensor counts as a
    whole: rows of an embedding that no token of the data uses stay."""
    still = [
        name for name, tensor in sorted(tensors.items()) if torch.equal(tensor, pinned[name].cpu())
    ]
    if still:
        names = ", ".join(still[:SAMPLES])
        moved = len(tensors) - len(still)
        message = f"{moved}/{len(tensors)} weights moved; still as in the base: {names}"
        fix = "raise optim.lr, or look for a layer that the loss does not reach"
        raise InputError(Finding("untrained-layers", message, field="method.type", fix=fix))
