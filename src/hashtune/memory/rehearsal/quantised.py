"""bitsandbytes' packed weights on fake tensors.

Its parameter classes cannot hold a fake tensor (torch.Tensor._make_subclass refuses one), so a fake
parameter takes their name and their attributes: bitsandbytes, transformers and PEFT ask for nothing
else. The packing is its own code on fake tensors, so storages, scales and what is held meanwhile
are those of a real load (Params4bit._quantize and Int8Params._quantize of 0.50).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

KEPT_4BIT = ("blocksize", "compress_statistics", "quant_type", "quant_storage")


class Params4bit(FakeTensor):
    """PEFT and transformers tell a packed parameter by this name."""


class Int8Params(FakeTensor):
    """PEFT and transformers tell a packed parameter by this name."""


def packed(skeleton: nn.Parameter, loaded: Tensor, module: Any) -> nn.Parameter:
    """The parameter that a quantised linear layer keeps in place of `loaded`.

    skeleton: bitsandbytes' parameter on the meta device, with its settings.
    """
    if type(skeleton).__name__ == "Params4bit":
        return _four_bit(skeleton, loaded, module)
    return _int8(skeleton, loaded)


def _four_bit(skeleton: Any, loaded: Tensor, module: Any) -> nn.Parameter:
    from bitsandbytes.functional import quantize_4bit

    settings = {name: getattr(skeleton, name) for name in KEPT_4BIT}
    codes, state = quantize_4bit(loaded.contiguous(), **settings)
    parameter: Any = nn.Parameter(codes, requires_grad=False)
    parameter.__class__ = Params4bit
    for name, value in settings.items():
        setattr(parameter, name, value)
    parameter.quant_state = module.quant_state = state
    parameter.bnb_quantized, parameter.module = True, module
    return parameter


def _int8(skeleton: Any, loaded: Tensor) -> nn.Parameter:
    from bitsandbytes.functional import int8_vectorwise_quant

    codes, scales, _ = int8_vectorwise_quant(loaded.contiguous().to(torch.float16))
    parameter: Any = nn.Parameter(codes, requires_grad=False)
    parameter.__class__ = Int8Params
    parameter.CB, parameter.SCB = codes, scales
    parameter.has_fp16_weights = skeleton.has_fp16_weights
    return parameter
