"""Exact parameter counts of llama-like models and their adapters, from config.json alone.

No torch, no weights: a count takes microseconds. Checked against the modelling code of
transformers on the meta device, one family at a time (tests/memory/test_shapes.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hashtune.errors import Finding, InputError, nearest
from hashtune.spec.targets import Matched, match
from hashtune.training.utilisation import attention_sizes

CONFIG_FILE = "config.json"
NEEDED = (
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "vocab_size"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """What a model type fixes in its modelling code. A bias of None is read from config.json."""

    block_norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = False
    tied: bool = False
    head_dim: int | None = None


FAMILIES = {
    "llama": Family(mlp_bias=None),
    "mistral": Family(qkv_bias=False, output_bias=False),
    "qwen2": Family(qkv_bias=True, output_bias=False),
    "qwen3": Family(qk_norm=True, head_dim=128),
    "smollm3": Family(mlp_bias=None, tied=True),
    "granite": Family(mlp_bias=None),
    "gemma": Family(tied=True, head_dim=256),
    "gemma3_text": Family(block_norms=4, qk_norm=True, tied=True, head_dim=256),
}


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear module of every block: y (outputs) = W (outputs x inputs) x + bias."""

    name: str
    inputs: int
    outputs: int
    bias: bool

    @property
    def weights(self) -> int:
        """Elements of W."""
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder: `layers` equal blocks with `linears`, embedding and head."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    block_norms: int
    qk_norm: bool
    linears: tuple[Linear, ...]

    @property
    def linear_weights(self) -> int:
        """Weight elements of the blocks' linear modules: what quantisation compresses."""
        return self.layers * sum(linear.weights for linear in self.linears)

    @property
    def linear_outputs(self) -> int:
        """Rows of all those weight matrices: int8 keeps a scale for each."""
        return self.layers * sum(linear.outputs for linear in self.linears)

    @property
    def parameters(self) -> int:
        """All parameters; a tied head counts once."""
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        biases = sum(linear.outputs for linear in self.linears if linear.bias)
        norms = self.block_norms * self.hidden + 2 * self.head_dim * self.qk_norm
        return embeddings + self.linear_weights + self.layers * (biases + norms) + self.hidden


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a Hugging Face config.json describes.

    Raises:
        InputError: a field is missing, or the model type is none of FAMILIES.
    """
    missing = [
        Finding("config-field", "is missing", file=CONFIG_FILE, field=key)
        for key in NEEDED
        if not config.get(key)
    ]
    if missing:
        raise InputError(missing)
    model_type = str(config["model_type"])
    if model_type not in FAMILIES:
        message = f"{model_type!r} has no memory formula here; {nearest(model_type, FAMILIES)}"
        raise InputError(Finding("model-type", message, file=CONFIG_FILE, field="model_type"))
    family = FAMILIES[model_type]
    layers, heads, head_dim = attention_sizes(config, head_dim=family.head_dim)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    tied = config.get("tie_word_embeddings")
    return Shape(
        model_type=model_type,
        layers=layers,
        hidden=int(config["hidden_size"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=int(config["intermediate_size"]),
        vocab=int(config["vocab_size"]),
        tied=family.tied if tied is None else bool(tied),
        block_norms=family.block_norms,
        qk_norm=family.qk_norm,
        linears=_linears(config, family, heads * head_dim, kv_heads * head_dim),
    )


def _linears(
    config: Mapping[str, Any], family: Family, query: int, key_value: int
) -> tuple[Linear, ...]:
    hidden, wide = int(config["hidden_size"]), int(config["intermediate_size"])
    attention_bias = bool(config.get("attention_bias"))
    qkv = attention_bias if family.qkv_bias is None else family.qkv_bias
    out = attention_bias if family.output_bias is None else family.output_bias
    mlp = bool(config.get("mlp_bias")) if family.mlp_bias is None else family.mlp_bias
    return (
        Linear("self_attn.q_proj", hidden, query, qkv),
        Linear("self_attn.k_proj", hidden, key_value, qkv),
        Linear("self_attn.v_proj", hidden, key_value, qkv),
        Linear("self_attn.o_proj", query, hidden, out),
        Linear("mlp.gate_proj", hidden, wide, mlp),
        Linear("mlp.up_proj", hidden, wide, mlp),
        Linear("mlp.down_proj", wide, hidden, mlp),
    )


def match_targets(shape: Shape, targets: str | Sequence[str]) -> Matched:
    """What the targets match among the linear modules of the blocks.

    Raises:
        InputError: one finding for each target that matches no module.
    """
    names = (
        f"model.layers.{layer}.{linear.name}"
        for layer in range(shape.layers)
        for linear in shape.linears
    )
    return match(names, targets)


def adapted_modules(shape: Shape, targets: str | Sequence[str]) -> dict[str, int]:
    """How many modules of each name ("self_attn.q_proj") carry an adapter, in the order of the
    shape. InputError as `match_targets`."""
    counts = Counter(".".join(name.split(".")[-2:]) for name in match_targets(shape, targets).names)
    return {linear.name: counts[linear.name] for linear in shape.linears if counts[linear.name]}


def lora_matrices(shape: Shape, r: int, targets: str | Sequence[str]) -> list[tuple[int, int, int]]:
    """(rows, columns, how many) of the adapter's matrices: A is r x in, B is out x r (Hu et al.
    2021, arXiv 2106.09685). InputError as `adapted_modules`."""
    counts = adapted_modules(shape, targets)
    return [
        matrix
        for linear in shape.linears
        if (count := counts.get(linear.name, 0))
        for matrix in ((r, linear.inputs, count), (linear.outputs, r, count))
    ]


def magnitude_vectors(shape: Shape, targets: str | Sequence[str]) -> list[tuple[int, int]]:
    """(length, how many) of DoRA's magnitudes: one number for each output of an adapted module
    (Liu et al. 2024, arXiv 2402.09353). InputError as `adapted_modules`."""
    counts = adapted_modules(shape, targets)
    return [
        (linear.outputs, counts[linear.name]) for linear in shape.linears if linear.name in counts
    ]


def prompt_matrix(shape: Shape, kind: Literal["prompt", "prefix"], count: int) -> tuple[int, int]:
    """(rows, columns) of `count` virtual tokens: a prompt's are embeddings, a prefix's the keys and
    values of every block."""
    columns = 2 * shape.layers * shape.kv_heads * shape.head_dim
    return count, shape.hidden if kind == "prompt" else columns


def lora_parameters(shape: Shape, r: int, targets: str | Sequence[str]) -> int:
    """Trainable parameters of a LoRA adapter: r * (in + out) for each adapted module."""
    return sum(rows * columns * count for rows, columns, count in lora_matrices(shape, r, targets))
