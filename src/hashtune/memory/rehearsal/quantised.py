"""bitsandbytes' packed weights on fake tensors.

Its parameter classes cannot hold a fake tensor (torch.Tensor._make_subclass refuses one), so a fake
parameter takes their name and their attributes: bitsandbytes, transformers and PEFT ask for nothing
else. The packing is its own code on fake tensors, so storages, scales and what is held meanwhile
are those of a real load (Params4bit._quantize and Int8Params._quantize of 0.50).
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

KEPT_4BIT = ("blocksize", "compress_statistics", "quant_type", "quant_storage")


def no_outliers() -> dict[Any, Callable[..., Any]]:
    """int8 products of an evaluation on fake tensors, whose outlier columns hang on values: taken
    to have none. What is held inside is that of backends/default/ops.py."""
    import bitsandbytes as _register  # noqa: F401  its operations come with it

    own = torch.ops.bitsandbytes
    return {
        own.int8_vectorwise_quant.default: _quantised,
        own.int8_mixed_scaled_mm.default: _product,
    }


def _quantised(states: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor, None]:
    codes = torch.empty(states.shape, dtype=torch.int8, device=states.device)
    return codes, states.new_empty(states.numel() // states.shape[-1], dtype=torch.float32), None


def _product(  # noqa: PLR0917  bitsandbytes' order
    states: Tensor,
    codes: Tensor,
    weight: Tensor,
    row_scales: Tensor,
    column_scales: Tensor,
    outliers: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    sums = torch.empty((*codes.shape[:-1], len(weight)), dtype=torch.int32, device=states.device)
    result = sums * (row_scales[:, None] * column_scales[None]) * 1.0
    return result.to(states.dtype), states.new_empty(0)


class Params4bit(FakeTensor):  # type: ignore[misc]  # torch is Any to mypy here
    """PEFT and transformers tell a packed parameter by this name."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """As bitsandbytes' own: codes and scales once more. DoRA copies a layer to begin."""
        copied: Any = nn.Parameter(self.detach().clone(), requires_grad=False)
        copied.__class__ = Params4bit
        for name in (*KEPT_4BIT, "bnb_quantized", "module"):
            setattr(copied, name, getattr(self, name))
        copied.quant_state = deepcopy(self.quant_state, memo)
        return copied


class Int8Params(FakeTensor):  # type: ignore[misc]  # torch is Any to mypy here
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


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """All that a loaded model holds: parameters, buffers, and what bitsandbytes keeps beside."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        for holder in (getattr(module, "weight", None), getattr(module, "state", None)):
            yield from _beside(holder)


def _beside(holder: Any) -> Iterator[Tensor]:
    state = getattr(holder, "quant_state", None)
    inner = getattr(state, "state2", None)
    names = (
        (state, ("absmax", "code", "offset")),
        (inner, ("absmax", "code")),
        (holder, ("CB", "SCB")),
    )
    for owner, attributes in names:
        for name in attributes:
            value = getattr(owner, name, None)
            if isinstance(value, Tensor):
                yield value
