"""What a model type fixes in its modelling code, and the shape that its config.json describes.

Read off transformers 5.24, models/<type>/modeling_<type>.py and configuration_<type>.py, checked
against the models that code builds (tests/memory/test_families.py).

    norm      "layer" has weight and bias              qk_norm   over each head, or over all
    biases    None is read from config.json            defaults  of fields that it may leave out
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hashtune.memory.layout import NormKind

Config = Mapping[str, Any]
LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*LLAMA_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True)
class Family:
    """See the table above. `qkv` and `mlp` say which modules there are: separate ones, or fused."""

    norms: tuple[str, ...] = LLAMA_NORMS
    norm: NormKind = "rms"
    qk_norm: Literal["none", "head", "whole"] = "none"
    qk_names: tuple[str, str] = ("self_attn.q_norm", "self_attn.k_norm")
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    out: str = "self_attn.o_proj"
    mlp: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    gated: bool = True
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = False
    head_bias: bool = False
    prefix: str = "model.layers"
    final_norm: str = "model.norm"
    bias_field: str = "attention_bias"
    sparse: bool = False
    upcast: bool = False
    rotary: Literal["none", "whole", "part"] = "whole"
    parallel: str = ""
    wide_softmax: bool = True
    defaults: Config = field(default_factory=dict)


GELU_NEW = {"hidden_act": "gelu_new"}
TIED = {"tie_word_embeddings": True}
GEMMA = {**TIED, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"}
SOFTCAPS = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
NO_WINDOW = {"use_sliding_window": False}
WINDOW = {"sliding_window": 4096}
SPARSE = {**NO_WINDOW, "decoder_sparse_step": 1, "mlp_only_layers": ()}
PHI_QK = ("self_attn.q_layernorm", "self_attn.k_layernorm")

FAMILIES = {
    "llama": Family(mlp_bias=None),
    "mistral": Family(
        qkv_bias=False,
        output_bias=False,
        defaults={"num_key_value_heads": 8, **WINDOW},
    ),
    "qwen2": Family(qkv_bias=True, output_bias=False, defaults=NO_WINDOW),
    "qwen3": Family(qk_norm="head", defaults={"head_dim": 128, **NO_WINDOW}),
    "smollm3": Family(mlp_bias=None, defaults={**TIED, "num_key_value_heads": 4, **NO_WINDOW}),
    "granite": Family(mlp_bias=None),
    "gemma": Family(upcast=True, defaults=GEMMA),
    "gemma2": Family(
        norms=FOUR_NORMS,
        upcast=True,
        defaults={
            **GEMMA,
            **WINDOW,
            "final_logit_softcapping": 30.0,
            "attn_logit_softcapping": 50.0,
        },
    ),
    "gemma3_text": Family(
        norms=FOUR_NORMS, qk_norm="head", upcast=True, defaults={**GEMMA, **WINDOW}
    ),
    "olmo2": Family(
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qk_norm="whole",
        upcast=True,
    ),
    "stablelm": Family(
        norm="layer",
        qkv_bias=None,
        output_bias=False,
        bias_field="use_qkv_bias",
        rotary="part",
        parallel="use_parallel_residual",
    ),
    "phi": Family(
        norms=("input_layernorm",),
        norm="layer",
        out="self_attn.dense",
        mlp=("mlp.fc1", "mlp.fc2"),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        final_norm="model.final_layernorm",
        parallel="always",
        rotary="part",
        defaults={**GELU_NEW, "always": True},
    ),
    "phi3": Family(
        qkv=("self_attn.qkv_proj",),
        mlp=("mlp.gate_up_proj", "mlp.down_proj"),
        rotary="part",
        qkv_bias=False,
        output_bias=False,
    ),
    "gpt_neox": Family(
        norm="layer",
        qkv=("attention.query_key_value",),
        out="attention.dense",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        gated=False,
        mlp_bias=True,
        prefix="gpt_neox.layers",
        final_norm="gpt_neox.final_layer_norm",
        parallel="use_parallel_residual",
        rotary="part",
        defaults={"attention_bias": True, "hidden_act": "gelu", "use_parallel_residual": True},
    ),
    "gpt2": Family(
        norms=("ln_1", "ln_2"),
        norm="layer",
        qkv=("attn.c_attn",),
        out="attn.c_proj",
        mlp=("mlp.c_fc", "mlp.c_proj"),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        prefix="transformer.h",
        final_norm="transformer.ln_f",
        rotary="none",
        wide_softmax=False,
        defaults={**TIED, **GELU_NEW, "max_position_embeddings": 1024},
    ),
    "falcon": Family(
        norm="layer",
        qkv=("self_attention.query_key_value",),
        out="self_attention.dense",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        gated=False,
        mlp_bias=None,
        prefix="transformer.h",
        final_norm="transformer.ln_f",
        bias_field="bias",
        parallel="parallel_attn",
        wide_softmax=False,
        defaults={**TIED, "multi_query": True, "parallel_attn": True, "hidden_act": "gelu"},
    ),
    "mixtral": Family(
        qkv_bias=False,
        output_bias=False,
        sparse=True,
        defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen3_moe": Family(
        qk_norm="head",
        sparse=True,
        defaults={
            **SPARSE,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
    ),
    "qwen2_moe": Family(
        output_bias=False,
        bias_field="qkv_bias",
        sparse=True,
        defaults={
            **SPARSE,
            "qkv_bias": True,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
        },
    ),
    "gpt_oss": Family(
        sparse=True,
        upcast=True,
        defaults={
            "attention_bias": True,
            "head_dim": 64,
            "sliding_window": 128,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
        },
    ),
}
