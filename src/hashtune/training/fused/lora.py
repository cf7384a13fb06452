"""A frozen linear layer with LoRA as one step of autograd.

y = x W' + bias + s (x A') B', and of the gradient d of y:

    dB = s d' (x A')      dA = s (d B)' x      dx = d W + s (d B) A

PEFT's layer computes the same, and casts its input to the adapter's fp32 and back for each module
under autocast. Here modules that read one tensor keep one: the input, and r numbers per token.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear, silu


class Frozen(NamedTuple):
    """What is not trained: weight (out, in), bias (out) if any, and LoRA's scale."""

    weight: Tensor
    bias: Tensor | None
    scale: float


class LoraLinear(Function):  # type: ignore[misc]  # torch is untyped here
    """apply(x, a, b, frozen): (..., in) to (..., out).

    a (r, in) and b (out, r) may be of a wider type than x and are rounded to its type for the
    products; their gradients have their own.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, frozen: Frozen) -> Tensor:
        """The product; keeps x and its product with A."""
        rows = x.reshape(-1, x.shape[-1])
        result, inner = product(rows, a, b, frozen)
        ctx.save_for_backward(rows, inner, a, b)
        ctx.frozen, ctx.shape = frozen, x.shape
        return shaped(result, x.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        """Gradients of x, A and B."""
        rows, inner, a, b = ctx.saved_tensors
        d = gradient.reshape(-1, gradient.shape[-1])
        back, da, db = adapter_gradients(d, rows, inner, a, b, scale=ctx.frozen.scale)
        if not ctx.needs_input_grad[0]:  # the first block: nothing below is trained
            return None, da, db, None
        return input_gradient(d, back, a, ctx.frozen).view(ctx.shape), da, db, None


class GatedLinear(Function):  # type: ignore[misc]  # torch is untyped here
    """apply(gate, up, a, b, frozen): LoraLinear of silu(gate) * up (arXiv 2002.05202).

    gate, up: (..., in). Keeps the two and computes their product again: plain modules keep four
    tensors of that width.
    """

    @staticmethod
    def forward(  # noqa: PLR0917  autograd takes tensors one by one
        ctx: Any, gate: Tensor, up: Tensor, a: Tensor, b: Tensor, frozen: Frozen
    ) -> Tensor:
        """The product; keeps gate, up and the product with A."""
        rows = silu(gate).mul_(up).reshape(-1, gate.shape[-1])
        result, inner = product(rows, a, b, frozen)
        ctx.save_for_backward(gate, up, inner, a, b)
        ctx.frozen = frozen
        return shaped(result, gate.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        """Gradients of gate, up, A and B."""
        gate, up, inner, a, b = ctx.saved_tensors
        d = gradient.reshape(-1, gradient.shape[-1])
        activation = silu(gate)
        rows = (activation * up).reshape(-1, gate.shape[-1])
        back, da, db = adapter_gradients(d, rows, inner, a, b, scale=ctx.frozen.scale)
        dh = input_gradient(d, back, a, ctx.frozen).view(gate.shape)
        d_up = activation.mul_(dh)
        d_gate = torch.ops.aten.silu_backward(dh.mul_(up), gate)
        return d_gate, d_up, da, db, None


def shaped(result: Tensor, like: torch.Size) -> Tensor:
    """Rows (N, out) as (..., out). Not a view to autograd, which would forbid a model to add to the
    result in place (Llama 4 does)."""
    own: Tensor = torch.ops.aten._unsafe_view(result, [*like[:-1], result.shape[-1]])
    return own


def product(rows: Tensor, a: Tensor, b: Tensor, frozen: Frozen) -> tuple[Tensor, Tensor]:
    """Rows (N, in) to (N, out), and their product with A (N, r)."""
    inner = rows @ a.to(rows.dtype).t()
    result = linear(rows, frozen.weight, frozen.bias)
    return result.addmm_(inner, b.to(rows.dtype).t(), alpha=frozen.scale), inner


def adapter_gradients(
    d: Tensor, rows: Tensor, inner: Tensor, a: Tensor, b: Tensor, *, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """d B (N, r), and the gradients of A and B, from the gradient d (N, out) of the result."""
    back = d @ b.to(d.dtype)
    da, db = (back.t() @ rows).to(a.dtype), (d.t() @ inner).to(b.dtype)
    return back, da.mul_(scale), db.mul_(scale)


def input_gradient(d: Tensor, back: Tensor, a: Tensor, frozen: Frozen) -> Tensor:
    """Gradient (N, in) of the rows."""
    result: Tensor = (d @ frozen.weight).addmm_(back, a.to(d.dtype), alpha=frozen.scale)
    return result
