"""LitGPT's linear modules: LoRA beside a plain or a 4-bit weight, and bitsandbytes' 4-bit product
of the time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from published.litgpt_settings import Lora, Part

BLOCK = 64  # weights that share an absmax
SECOND_BLOCK = 256  # absmax values that share one of the second level


@dataclass(frozen=True, slots=True)
class Linears:
    """How the linear modules are made: `lora` beside them; `packed`, with or without `double`
    quantisation; `keeps_inputs` and `half_state` of litgpt_settings.py."""

    lora: Lora | None
    packed: bool
    double: bool
    keeps_inputs: bool
    half_state: bool

    def base(self, inputs: int, outputs: int, bias: bool) -> nn.Module:
        """The frozen part of a module."""
        if self.packed:
            return Packed(inputs, outputs, bias, self)
        return nn.Linear(inputs, outputs, bias=bias)

    def rank(self, part: Part) -> int:
        """r of the adapter on this part, 0 where there is none."""
        return self.lora.r if self.lora and part in self.lora.parts else 0


class Unpacked(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit: the weight is unpacked for each product, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: "Packed") -> Tensor:
        ctx.module, ctx.kept = module, x if module.how.keeps_inputs else None
        return functional.linear(x, module.weights(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.matmul(grad, ctx.module.weights(grad.dtype)), None


class Packed(nn.Module):
    """A 4-bit weight with its absmax."""

    def __init__(self, inputs: int, outputs: int, bias: bool, how: Linears) -> None:
        super().__init__()
        self.inputs, self.outputs, self.how = inputs, outputs, how
        blocks = -(-inputs * outputs // BLOCK)
        self.register_buffer("packed", torch.empty(inputs * outputs // 2, dtype=torch.uint8))
        first = torch.uint8 if how.double else torch.float32
        self.register_buffer("absmax", torch.empty(blocks, dtype=first))
        if how.double:
            second = torch.empty(-(-blocks // SECOND_BLOCK), dtype=torch.float32)
            self.register_buffer("second", second)
        self.bias = nn.Parameter(torch.zeros(outputs), requires_grad=False) if bias else None

    def weights(self, dtype: torch.dtype) -> Tensor:
        """The weight, unpacked to the type that it was packed from, then cast."""
        if self.how.double:
            self.absmax.float()
        state = torch.float16 if self.how.half_state else dtype
        return torch.empty(self.outputs, self.inputs, dtype=state).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        y = Unpacked.apply(x, self)
        return y if self.bias is None else y + self.bias


class Adapted(nn.Module):
    """A linear module with LoRA where its part has one (LoRALinear)."""

    def __init__(self, inputs: int, outputs: int, how: Linears, part: Part, bias: bool) -> None:
        super().__init__()
        self.linear = how.base(inputs, outputs, bias)
        self.dropout, self.r = how.lora.dropout if how.lora else 0.0, how.rank(part)
        if self.r:
            self.lora_a = nn.Parameter(torch.empty(self.r, inputs))
            self.lora_b = nn.Parameter(torch.empty(outputs, self.r))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if not self.r:
            return y
        return y + (dropped(x, self.dropout) @ self.lora_a.T @ self.lora_b.T) * 0.5


@dataclass(frozen=True, slots=True)
class Qkv:
    """Sizes of attention: inputs, heads of queries, of keys, and elements of one."""

    inputs: int
    heads: int
    groups: int
    head_dim: int


class AdaptedQkv(nn.Module):
    """Query, key and value at once (LoRAQKVLinear): one A for all adapted parts, B by a convolution
    with a group for each, zeros where a part has no adapter."""

    def __init__(self, qkv: Qkv, how: Linears, bias: bool) -> None:
        super().__init__()
        self.outputs = (qkv.heads + 2 * qkv.groups) * qkv.head_dim
        self.linear = how.base(qkv.inputs, self.outputs, bias)
        widths = {"query": qkv.heads, "key": qkv.groups, "value": qkv.groups}
        self.widths = [w * qkv.head_dim for part, w in widths.items() if how.rank(part)]
        self.padded, self.equal = len(self.widths) < len(widths), qkv.heads == qkv.groups
        self.dropout, r = how.lora.dropout if how.lora else 0.0, how.lora.r if how.lora else 0
        if self.widths:
            self.lora_a = nn.Parameter(torch.empty(r * len(self.widths), qkv.inputs))
            self.lora_b = nn.Parameter(torch.empty(sum(self.widths), r))
            self.register_buffer("places", torch.arange(sum(self.widths)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if not self.widths:
            return y
        down = functional.linear(dropped(x, self.dropout), self.lora_a).transpose(-2, -1)
        up = self.lora_b.unsqueeze(-1)
        if self.equal:
            lora = functional.conv1d(down, up, groups=len(self.widths))
        else:
            parts = zip(down.chunk(len(self.widths), dim=1), up.split(self.widths), strict=True)
            lora = torch.cat([functional.conv1d(a, b) for a, b in parts], dim=1)
        lora = lora.transpose(-2, -1)
        if self.padded:
            zeros = lora.new_zeros(*lora.shape[:-1], self.outputs)
            lora = zeros.index_copy_(-1, self.places, lora)
        return y + lora * 0.5


def dropped(x: Tensor, rate: float) -> Tensor:
    """Dropout as CUDA has it: the mask is bytes."""
    return torch.native_dropout(x, rate, True)[0] if rate else x
