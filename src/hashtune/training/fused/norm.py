"""Root-mean-square normalisation with a frozen weight as one step of autograd."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class RmsNorm(Function):  # type: ignore[misc]  # torch is untyped here
    """apply(x, weight, eps): weight * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and
    Sennrich 2019, arXiv 1910.07467), as Llama's module computes it: the quotient in fp32 or wider,
    rounded to x's type before the weight.

    Keeps x as it is and one factor per vector. With n = x / rms and g = d * weight:
    dx = (g - n mean(g n)) / rms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """The normalised x, of its type."""
        wide = _wide(x)
        factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, factor)
        return (wide * factor).to(x.dtype).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of x."""
        x, weight, factor = ctx.saved_tensors
        scaled = _wide(gradient * weight)
        normal = _wide(x) * factor
        share = (scaled * normal).mean(-1, keepdim=True)
        return normal.mul_(share).sub_(scaled).mul_(factor.neg()).to(x.dtype), None, None


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
