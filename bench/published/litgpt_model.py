"""LitGPT's decoder, as far as memory goes: the same operations in the same order and types, from
config.json. Written from its source (litgpt_settings.py has the revisions), for fake tensors.

What differs from transformers, in bytes: query, key and value are one product that attention keeps
whole; LoRA's part of it is padded with zeros to that size; the rotary tables are fp32; keys and
values are expanded for all heads; RMSNorm computes in fp32.
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from published.litgpt_arch import Arch
from published.litgpt_linear import Adapted, AdaptedQkv, Linears, Qkv


class RmsNorm(nn.Module):
    """In fp32, and back."""

    def __init__(self, width: int, *, unit_offset: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.unit_offset = unit_offset

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.float()
        normed = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)
        weight = 1 + self.weight if self.unit_offset else self.weight
        return (normed * weight.float()).to(dtype)


def norm_of(arch: Arch) -> nn.Module:
    """A norm over the hidden states."""
    if arch.norm == "layer":
        return nn.LayerNorm(arch.hidden)
    return RmsNorm(arch.hidden, unit_offset=arch.gemma2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotary part; the fp32 tables make its temporaries fp32."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).to(x.dtype)


class Attention(nn.Module):
    """One product for query, key and value; flash attention, or Gemma 2's capped scores."""

    def __init__(self, arch: Arch, linears: Linears, index: int) -> None:
        super().__init__()
        self.arch = arch
        qkv = Qkv(arch.hidden, arch.heads, arch.groups, arch.head_dim)
        self.attn = AdaptedQkv(qkv, linears, arch.bias)
        width = arch.heads * arch.head_dim
        self.proj = Adapted(width, arch.hidden, linears, "projection", arch.bias)
        self.window = bool(arch.window_every) and index % arch.window_every == 0

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        arch, (rows, tokens, _) = self.arch, x.shape
        per_group = arch.heads // arch.groups
        qkv = self.attn(x).view(rows, tokens, arch.groups, per_group + 2, arch.head_dim)
        q, k, v = qkv.permute(0, 2, 3, 1, 4).split((per_group, 1, 1), dim=2)
        if per_group > 1:
            k, v = (t.expand(-1, -1, per_group, -1, -1) for t in (k, v))
        q, k, v = (t.reshape(rows, -1, tokens, arch.head_dim) for t in (q, k, v))
        q, k = (
            torch.cat((rotated(t[..., : arch.rotary], cos, sin), t[..., arch.rotary :]), dim=-1)
            for t in (q, k)
        )
        return self.proj(self._attended(q, k, v).reshape(rows, tokens, arch.heads * arch.head_dim))

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = 1.0 / sqrt(self.arch.head_dim)
        if not self.arch.gemma2:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            return y.transpose(1, 2)
        mask = torch.ones(q.size(2), q.size(2), dtype=q.dtype).triu(diagonal=1)
        mask.masked_fill_(mask.bool(), float("-inf"))
        if self.window:
            beyond = torch.ones_like(mask).tril(diagonal=-4096)
            mask += beyond.masked_fill_(beyond.bool(), float("-inf"))
        scores = q @ k.mT * scale
        scores = torch.tanh(scores / 50.0) * 50.0 + mask
        scores = torch.softmax(scores, dim=-1, dtype=torch.float).to(q.dtype)
        return (scores @ v).transpose(1, 2)


class Mlp(nn.Module):
    """Gated, or GPT-NeoX's."""

    def __init__(self, arch: Arch, linears: Linears) -> None:
        super().__init__()
        self.arch = arch
        wide = (arch.hidden, arch.intermediate, linears, "mlp", arch.bias)
        self.fc_1 = Adapted(*wide)
        self.fc_2 = Adapted(*wide) if arch.gated else None
        self.proj = Adapted(arch.intermediate, arch.hidden, linears, "mlp", arch.bias)

    def forward(self, x: Tensor) -> Tensor:
        first = self.fc_1(x)
        second = None if self.fc_2 is None else self.fc_2(x)
        active = (
            functional.silu(first) if self.arch.silu and self.arch.gated else functional.gelu(first)
        )
        return self.proj(active if second is None else active * second)


class Block(nn.Module):
    """Attention and MLP, one after the other or side by side."""

    def __init__(self, arch: Arch, linears: Linears, index: int) -> None:
        super().__init__()
        self.arch = arch
        self.norm_1 = norm_of(arch)
        self.attn = Attention(arch, linears, index)
        self.norm_2 = None if arch.shared_norm else norm_of(arch)
        self.mlp = Mlp(arch, linears)
        self.after_attention = norm_of(arch) if arch.gemma2 else nn.Identity()
        self.after_mlp = norm_of(arch) if arch.gemma2 else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.after_attention(self.attn(normed, cos, sin))
        if self.arch.parallel:
            normed = normed if self.norm_2 is None else self.norm_2(x)
            return self.mlp(normed) + attended + x
        x = attended + x
        return self.after_mlp(self.mlp(self.norm_2(x))) + x


class Gpt(nn.Module):
    """The decoder with its head; `head_chunk` positions at a time, as finetune/lora.py asks."""

    def __init__(self, arch: Arch, linears: Linears) -> None:
        super().__init__()
        self.arch = arch
        self.lm_head = Adapted(arch.hidden, arch.vocab, linears, "head", arch.head_bias)
        self.wte = nn.Embedding(arch.vocab, arch.hidden)
        self.blocks = nn.ModuleList(Block(arch, linears, i) for i in range(arch.layers))
        self.ln_f = norm_of(arch)

    def forward(
        self, ids: Tensor, cos: Tensor, sin: Tensor, head_chunk: int
    ) -> Tensor | list[Tensor]:
        x = self.wte(ids)
        if self.arch.gemma2:
            x = x * torch.tensor(self.arch.hidden**0.5, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        if head_chunk:  # without Gemma 2's cap, which the chunked head forgets
            return [self.lm_head(part) for part in x.split(head_chunk, dim=1)]
        return self.lm_head(x)
