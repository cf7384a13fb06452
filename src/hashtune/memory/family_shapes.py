"""The shape that a config.json of a known model type describes, by the table of families.py."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hashtune.memory.families import FAMILIES, LLAMA_NORMS, PHI_QK, Family
from hashtune.memory.layout import Bare, Experts, Layers, Linear, Norm, Shape
from hashtune.training.utilisation import attention_sizes

Config = Mapping[str, Any]
# What GPT-2 and Falcon call the common fields
ALIASES: dict[str, dict[str, str]] = {
    "gpt2": {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
        "hidden_act": "activation_function",
    },
    "falcon": {"intermediate_size": "ffn_hidden_size", "hidden_act": "activation"},
    "gemma2": {"hidden_act": "hidden_activation"},
    "gemma3_text": {"hidden_act": "hidden_activation"},
}
FOUR_TIMES = ("gpt2", "falcon")  # their MLP is 4 * hidden_size where config.json says nothing


def common_names(config: Config) -> dict[str, Any]:
    """The config under the common names, with the model type's defaults where it says nothing."""
    model_type = str(config.get("model_type"))
    known = {name: value for name, value in config.items() if value is not None}
    for name, alias in ALIASES.get(model_type, {}).items():
        if alias in known:
            known.setdefault(name, known[alias])
    if model_type in FOUR_TIMES and isinstance(known.get("hidden_size"), int):
        known.setdefault("intermediate_size", 4 * known["hidden_size"])
    defaults = FAMILIES[model_type].defaults if model_type in FAMILIES else {}
    return {**defaults, **known}


def family_shape(config: Config) -> Shape:
    """The shape of a known model type from a config under the common names."""
    model_type = str(config["model_type"])
    family = FAMILIES[model_type]
    layers, heads, head_dim = attention_sizes(config)
    hidden, wide = int(config["hidden_size"]), int(config["intermediate_size"])
    shape = Shape(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=head_dim,
        intermediate=wide,
        vocab=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings")),
        linears=(),
        norms=(),
        final_norm=_norm(family, family.final_norm, hidden),
        head_bias=family.head_bias,
        others=int(config["max_position_embeddings"]) * hidden if model_type == "gpt2" else 0,
        prefix=family.prefix,
        gated=family.gated,
        activation=str(config.get("hidden_act", "silu")),
        attention_softcap=bool(config.get("attn_logit_softcapping")),
        logit_softcap=bool(config.get("final_logit_softcapping")),
        window=_window(config),
        wide_softmax=family.wide_softmax,
        rotary="none" if config.get("alibi") else family.rotary,
        parallel=bool(config.get(family.parallel)) if family.parallel else False,
    )
    experts = _experts(config, layers) if family.sparse else None
    if experts is not None and experts.layers is None:  # no block has a dense MLP
        shape = replace(shape, intermediate=experts.width)
    return replace(
        shape,
        norms=_norms(shape, family, config),
        linears=(*_attention(shape, family, config), *_mlp(shape, family, config, experts)),
        bare=_bare(shape, experts),
        experts=experts,
    )


def _kv_heads(config: Config, heads: int) -> int:
    """Falcon: as many as heads, or one (multi-query), or num_kv_heads in the newer architecture."""
    if config["model_type"] != "falcon":
        return int(config.get("num_key_value_heads") or heads)
    if config.get("new_decoder_architecture"):
        return int(config.get("num_kv_heads") or heads)
    return 1 if config["multi_query"] else heads


def _window(config: Config) -> int:
    """Keys of a sliding window; Qwen and SmolLM3 use theirs only if told so."""
    on = "use_sliding_window" not in config or config["use_sliding_window"]
    return int(config.get("sliding_window") or 0) if on else 0


def _norm(family: Family, name: str, width: int) -> Norm:
    return Norm(name, width, family.norm, bias=family.norm == "layer", upcast=family.upcast)


def _norms(shape: Shape, family: Family, config: Config) -> tuple[Norm, ...]:
    names = family.norms
    if shape.model_type == "falcon":
        names = _falcon_norms(config)
    if shape.model_type == "stablelm" and config.get("use_parallel_residual"):
        names = names[:1]
    norms = tuple(_norm(family, name, shape.hidden) for name in names)
    return norms + _qk_norms(shape, family, config)


def _falcon_norms(config: Config) -> tuple[str, ...]:
    """One norm feeds both halves of a parallel block, or each has its own."""
    if not config["parallel_attn"]:
        return LLAMA_NORMS
    own = 2 if config.get("new_decoder_architecture") else 1
    own = int(config.get("num_ln_in_parallel_attn") or own)
    return ("ln_attn", "ln_mlp") if own == 2 else LLAMA_NORMS[:1]


def _qk_norms(shape: Shape, family: Family, config: Config) -> tuple[Norm, ...]:
    counts = (shape.heads, shape.kv_heads)
    names = family.qk_names
    if family.qk_norm == "head":
        pairs = zip(names, counts, strict=True)
        one = partial(Norm, width=shape.head_dim, upcast=family.upcast)
        return tuple(one(name, vectors=count) for name, count in pairs)
    if family.qk_norm == "whole":
        pairs = zip(names, counts, strict=True)
        one = partial(Norm, upcast=family.upcast)
        return tuple(one(name, count * shape.head_dim) for name, count in pairs)
    if not config.get("qk_layernorm"):
        return ()
    pairs = zip(PHI_QK, counts, strict=True)
    if shape.model_type == "stablelm":
        return tuple(
            Norm(name, shape.head_dim, "layer", vectors=count, copies=count)
            for name, count in pairs
        )
    return tuple(Norm(name, shape.head_dim, "layer", True, vectors=count) for name, count in pairs)


def _attention(shape: Shape, family: Family, config: Config) -> tuple[Linear, ...]:
    bias = bool(config.get(family.bias_field))
    qkv = bias if family.qkv_bias is None else family.qkv_bias
    out = bias if family.output_bias is None else family.output_bias
    sizes = [shape.query, shape.key, shape.key]
    if len(family.qkv) == 1:
        sizes = [sum(sizes)]
    pairs = zip(family.qkv, sizes, strict=True)
    inputs = [Linear(name, shape.hidden, size, qkv, "attention") for name, size in pairs]
    return (*inputs, Linear(family.out, shape.query, shape.hidden, out, "attended"))


def _mlp(
    shape: Shape, family: Family, config: Config, experts: Experts | None
) -> tuple[Linear, ...]:
    names = {"falcon": "bias"}.get(shape.model_type, "mlp_bias")
    bias = bool(config.get(names)) if family.mlp_bias is None else family.mlp_bias
    dense: Layers = None
    if experts is not None and experts.layers is not None:
        dense = tuple(sorted({*range(shape.layers)} - {*experts.layers}))
    linears: list[Linear] = []
    if experts is None or dense:
        linears += _one_mlp(shape, family, bias=bias, layers=dense)
    if experts is not None and experts.shared:
        linears += _shared(shape, experts)
    return tuple(linears)


def _one_mlp(shape: Shape, family: Family, *, bias: bool, layers: Layers) -> list[Linear]:
    hidden, wide = shape.hidden, shape.intermediate
    first = 2 * wide if family.gated and len(family.mlp) == 2 else wide
    return [
        *(Linear(name, hidden, first, bias, "mlp", layers) for name in family.mlp[:-1]),
        Linear(family.mlp[-1], wide, hidden, bias, "product", layers),
    ]


def _shared(shape: Shape, experts: Experts) -> list[Linear]:
    """Qwen2-MoE's expert for all tokens, and the gate of one output before it."""
    hidden, wide, layers = shape.hidden, experts.shared, experts.layers
    where = "mlp.shared_expert"
    return [
        Linear(f"{where}.gate_proj", hidden, wide, False, "mlp", layers),
        Linear(f"{where}.up_proj", hidden, wide, False, "mlp", layers),
        Linear(f"{where}.down_proj", wide, hidden, False, "shared", layers),
        Linear("mlp.shared_expert_gate", hidden, 1, False, "mlp", layers),
    ]


def _experts(config: Config, layers: int) -> Experts:
    """Mixtral and GPT-OSS have experts in every block, Qwen's in every `decoder_sparse_step`th
    that `mlp_only_layers` does not name."""
    step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers", ())
    sparse = tuple(n for n in range(layers) if n not in dense and (n + 1) % step == 0)
    return Experts(
        count=int(config.get("num_experts") or config["num_local_experts"]),
        per_token=int(config["num_experts_per_tok"]),
        width=int(config.get("moe_intermediate_size") or config["intermediate_size"]),
        shared=int(config.get("shared_expert_intermediate_size") or 0),
        layers=None if len(sparse) == layers else sparse,
    )


def _bare(shape: Shape, experts: Experts | None) -> tuple[Bare, ...]:
    """Stacked experts, (experts, out, in), and their router; GPT-OSS's lie the other way round,
    have biases, and its attention has a sink for each head."""
    if experts is None:
        return ()
    count, hidden, wide, layers = experts.count, shape.hidden, experts.width, experts.layers
    if shape.model_type != "gpt_oss":
        return (
            Bare("mlp.gate.weight", (count, hidden), layers),
            Bare("mlp.experts.gate_up_proj", (count, 2 * wide, hidden), layers),
            Bare("mlp.experts.down_proj", (count, hidden, wide), layers),
        )
    return (
        Bare("self_attn.sinks", (shape.heads,)),
        Bare("mlp.router.weight", (count, hidden)),
        Bare("mlp.router.bias", (count,)),
        Bare("mlp.experts.gate_up_proj", (count, hidden, 2 * wide)),
        Bare("mlp.experts.gate_up_proj_bias", (count, 2 * wide)),
        Bare("mlp.experts.down_proj", (count, wide, hidden)),
        Bare("mlp.experts.down_proj_bias", (count, hidden)),
    )
