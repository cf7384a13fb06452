"""The shape of LitGPT's decoder, read from config.json of transformers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Arch:
    """LitGPT's Config, read from config.json of transformers."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head_dim: int
    intermediate: int
    vocab: int
    rotary: int
    norm: Literal["rms", "layer"]
    gated: bool
    silu: bool
    parallel: bool
    shared_norm: bool
    bias: bool
    head_bias: bool
    gemma2: bool
    window_every: int

    @property
    def qkv(self) -> int:
        """Outputs of the one product that gives queries, keys and values."""
        return (self.heads + 2 * self.groups) * self.head_dim


def arch_of(config: Mapping[str, Any]) -> Arch:
    """Read it. LitGPT never ties the head to the embedding; its padded vocabularies are those of
    the configs here."""
    kind = config["model_type"]
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    neox, phi, gemma = kind == "gpt_neox", kind == "phi", kind == "gemma2"
    share = config.get("rotary_pct", config.get("partial_rotary_factor", 1.0))
    return Arch(
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        groups=config["num_key_value_heads"],
        head_dim=head_dim,
        intermediate=config["intermediate_size"],
        vocab=config["vocab_size"],
        rotary=int(share * head_dim),
        norm="layer" if neox or phi else "rms",
        gated=not (neox or phi),
        silu=not gemma,
        parallel=neox or phi,
        shared_norm=phi,
        bias=neox or phi,
        head_bias=phi,
        gemma2=gemma,
        window_every=2 if gemma else 0,
    )
