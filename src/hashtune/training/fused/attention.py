"""Causal attention of one document on a CPU, in blocks of queries, with whole matrix products.

torch's CPU kernel for it (2.13) spends most of its time in small products, above all in bf16 and in
the backward. Here a block of queries meets all keys up to its end in one product per key head; the
queries of the heads that share a key head are its rows, so no key is repeated. The backward
computes the probabilities again: what is kept is linear in the document, as it is for SDPA.

Scores are rounded to the type of the queries before the softmax, whose sums are fp32 inside; so
does transformers' eager attention.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

BLOCK = 128  # queries; no bench compares other sizes yet


class CausalAttention(Function):  # type: ignore[misc]  # torch is untyped here
    """apply(query, key, value, scale): softmax(scale * q k' below the diagonal) v.

    query: (1, heads, n, d). key, value: (1, key heads, n, d); heads is a multiple of key heads.
    Returns (1, n, heads, d of value).
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """The result; keeps the scaled queries, keys and values."""
        heads, length, keys = query.shape[1], query.shape[2], key.shape[1]
        q = (query[0] * scale).reshape(keys, heads // keys, length, -1)
        k, v = key[0].contiguous(), value[0].contiguous()
        result = q.new_empty(length, keys, heads // keys, v.shape[-1])
        for begin, end in _blocks(length):
            part = torch.bmm(_probabilities(q, k, begin, end), v[:, :end])
            result[begin:end] = part.view(keys, heads // keys, end - begin, -1).permute(2, 0, 1, 3)
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return result.view(1, length, heads, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gradients of queries, keys and values."""
        q, k, v = ctx.saved_tensors
        keys, group, length, width = q.shape
        above = gradient.reshape(length, keys, group, -1).permute(1, 2, 0, 3)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for begin, end in _blocks(length):
            d, own = _rows(above, begin, end), _rows(q, begin, end)
            p = _probabilities(q, k, begin, end)
            dv[:, :end].baddbmm_(p.transpose(1, 2), d)
            dp = torch.bmm(d, v[:, :end].transpose(1, 2))
            ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
            dq[:, :, begin:end] = torch.bmm(ds, k[:, :end]).view(keys, group, end - begin, width)
            dk[:, :end].baddbmm_(ds.transpose(1, 2), own)
        return dq.mul_(ctx.scale).view(1, keys * group, length, width), dk[None], dv[None], None


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(length, begin + BLOCK)) for begin in range(0, length, BLOCK))


def _rows(tensor: Tensor, begin: int, end: int) -> Tensor:
    """(key heads, group, n, d) to (key heads, group * (end - begin), d)."""
    return tensor[:, :, begin:end].reshape(tensor.shape[0], -1, tensor.shape[-1])


def _probabilities(q: Tensor, k: Tensor, begin: int, end: int) -> Tensor:
    """Of a block of queries over the keys up to its end: (key heads, group * block, end)."""
    scores = torch.bmm(_rows(q, begin, end), k[:, :end].transpose(1, 2))
    own = scores.view(q.shape[0], -1, end - begin, end)[..., begin:]
    own += _above_diagonal(end - begin, q.dtype)
    return torch.softmax(scores, -1)


@lru_cache(maxsize=8)
def _above_diagonal(length: int, dtype: torch.dtype) -> Tensor:
    """(length, length): -inf for keys behind the query, else 0."""
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.zeros(length, length, dtype=dtype).masked_fill_(later, -math.inf)
