"""The table of families against the modelling code, and against the inventory read off it."""

import os
from dataclasses import replace
from typing import Any

import pytest

from hashtune.memory.families import FAMILIES
from hashtune.memory.inventory import inventory
from hashtune.memory.shapes import Shape, read_shape

os.environ["HF_HUB_OFFLINE"] = "1"

TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "vocab_size": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {"head_dim": 24}
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention_bias": True, "mlp_bias": True, **HEADS}),
    ("llama", {"tie_word_embeddings": True}),
    ("mistral", HEADS),
    ("qwen2", {}),
    ("qwen3", {"attention_bias": True}),
    ("smollm3", {}),
    ("granite", {"attention_bias": True, "mlp_bias": True}),
    ("gemma", HEADS),
    ("gemma2", HEADS),
    ("gemma3_text", {}),
    ("olmo2", {"attention_bias": True}),
    ("stablelm", {}),
    ("stablelm", {"use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True}),
    ("phi", {}),
    ("phi", {"qk_layernorm": True}),
    ("phi3", {}),
    ("gpt_neox", {}),
    ("gpt_neox", {"attention_bias": False}),
    ("gpt2", {"max_position_embeddings": 32}),
    ("gpt2", {"n_inner": 100}),
    ("falcon", {}),
    ("falcon", {"multi_query": False, "parallel_attn": False, "bias": True}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("mixtral", {"num_local_experts": 4}),
    ("qwen3_moe", SPARSE),
    ("qwen3_moe", {**SPARSE, "decoder_sparse_step": 2}),
    ("qwen3_moe", {**SPARSE, "mlp_only_layers": [1]}),
    ("qwen2_moe", {**SPARSE, "shared_expert_intermediate_size": 56}),
    ("qwen2_moe", {**SPARSE, "shared_expert_intermediate_size": 56, "mlp_only_layers": [0]}),
    ("gpt_oss", {"num_local_experts": 4}),
]


def settings(model_type: str, extra: dict[str, Any]) -> dict[str, Any]:
    config = {"model_type": model_type, **TINY, **extra}
    if model_type in ("gpt2", "falcon", "gpt_neox"):  # all heads have their own keys
        del config["num_key_value_heads"]
    if model_type in ("gpt2", "falcon"):
        del config["intermediate_size"]
    return config


def build(config: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    rest = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **rest))


@pytest.mark.parametrize(("model_type", "extra"), CASES, ids=str)
def test_counts_agree_with_the_modelling_code(model_type: str, extra: dict[str, Any]) -> None:
    config = settings(model_type, extra)
    expected = sum(parameter.numel() for parameter in build(config).parameters())
    assert read_shape(config).parameters == expected


def parts(shape: Shape) -> dict[str, Any]:
    """What both ways must say, in an order of its own."""
    names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "tied")
    names += ("experts", "head_bias", "others", "prefix", "gated", "activation", "window")
    names += ("rotary", "parallel")
    names += ("attention_softcap", "logit_softcap", "parameters")
    found = {name: getattr(shape, name) for name in names}
    for name in ("linears", "bare"):
        found[name] = sorted(map(str, getattr(shape, name)))
    found["norms"] = sorted(str(replace(norm, upcast=False)) for norm in shape.norms)
    found["final_norm"] = replace(shape.final_norm, upcast=False)
    return found


@pytest.mark.parametrize(("model_type", "extra"), CASES, ids=str)
def test_the_table_and_the_inventory_agree(model_type: str, extra: dict[str, Any]) -> None:
    config = settings(model_type, extra)
    assert parts(read_shape(config)) == parts(inventory(config))


def test_every_family_is_among_the_cases() -> None:
    assert {model_type for model_type, _ in CASES} == FAMILIES.keys()


def test_planted_fault_a_bias_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings("phi", {})
    monkeypatch.setitem(FAMILIES, "phi", replace(FAMILIES["phi"], head_bias=False))
    assert read_shape(config).parameters + 96 == inventory(config).parameters
    assert parts(read_shape(config)) != parts(inventory(config))


def test_a_model_type_without_a_family_is_read_off_its_model() -> None:
    """StarCoder2: 64-wide blocks of 2 LayerNorms, biases everywhere, and a head tied to the
    embedding: 96 * 64 + 128; a block's 2 * 128, q and o 2 * 64 * 65, k and v 2 * 32 * 65, MLP
    80 * 65 + 64 * 81."""
    assert "starcoder2" not in FAMILIES
    shape = read_shape(settings("starcoder2", {"tie_word_embeddings": True}))
    block = 256 + 2 * 64 * 65 + 2 * 32 * 65 + 80 * 65 + 64 * 81
    assert shape.parameters == 96 * 64 + 128 + 3 * block
    assert (shape.gated, shape.kv_heads, shape.norms[0].kind) == (False, 2, "layer")
