"""Shapes: published counts, the modelling code itself, and targets that match nothing."""

import os
from typing import Any

import pytest

from hashtune.errors import InputError
from hashtune.memory.shapes import (
    adapted_modules,
    lora_parameters,
    magnitude_vectors,
    match_targets,
    read_shape,
)

os.environ["HF_HUB_OFFLINE"] = "1"

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
SMOLLM2 = {
    "model_type": "llama",
    "attention_bias": False,
    "head_dim": 64,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_published_counts() -> None:
    assert read_shape(LLAMA_8B).parameters == 8_030_261_248
    assert read_shape(SMOLLM2).parameters == 134_515_008


@pytest.mark.parametrize("targets", ["all-linear", SEVEN])
def test_worked_adapter(targets: str | list[str]) -> None:
    shape = read_shape(LLAMA_8B)
    assert lora_parameters(shape, 16, targets) == 41_943_040
    assert (
        lora_parameters(read_shape(LLAMA_8B | {"num_hidden_layers": 1}), 16, targets) == 1_310_720
    )
    by_module = {name: lora_parameters(shape, 16, [name]) // 32 for name in SEVEN}
    assert by_module == {
        "q_proj": 131_072,
        "k_proj": 81_920,
        "v_proj": 81_920,
        "o_proj": 131_072,
        "gate_proj": 294_912,
        "up_proj": 294_912,
        "down_proj": 294_912,
    }


def test_targets_by_peft_s_rule_and_by_pattern() -> None:
    shape = read_shape(SMOLLM2)
    found = match_targets(shape, ["layers.3.self_attn.q_proj"])
    assert found.names == ("model.layers.3.self_attn.q_proj",)
    pattern = r"re:model\.layers\.([0-9]|1[0-4])\.mlp\..*"
    assert match_targets(shape, [pattern, "q_proj"]).counts == {pattern: 45, "q_proj": 30}
    assert adapted_modules(shape, [pattern, "q_proj"]) == {
        "self_attn.q_proj": 30,
        "mlp.gate_proj": 15,
        "mlp.up_proj": 15,
        "mlp.down_proj": 15,
    }
    assert adapted_modules(shape, ["q_proj", "self_attn.q_proj", "layers.0.mlp.up_proj"]) == {
        "self_attn.q_proj": 30,
        "mlp.up_proj": 1,
    }


def test_dora_s_magnitudes() -> None:
    """SmolLM2-135M: 576 + 192 + 192 + 576 + 1536 + 1536 + 576 outputs in each of 30 blocks."""
    vectors = magnitude_vectors(read_shape(SMOLLM2), "all-linear")
    assert vectors == [
        (576, 30),
        (192, 30),
        (192, 30),
        (576, 30),
        (1536, 30),
        (1536, 30),
        (576, 30),
    ]
    assert sum(length * count for length, count in vectors) == 30 * 5_184
    assert magnitude_vectors(read_shape(SMOLLM2), ["v_proj"]) == [(192, 30)]


def test_every_target_without_a_match_is_named() -> None:
    with pytest.raises(InputError) as caught:
        adapted_modules(read_shape(SMOLLM2), ["q_proj", "v_projj", "lm_head"])
    first, second = caught.value.findings
    assert first.message == "'v_projj' matches 0 modules; did you mean 'v_proj'?"
    assert first.field == "method.targets[1]"
    assert second.field == "method.targets[2]"


def test_config_faults() -> None:
    with pytest.raises(InputError) as caught:
        read_shape({"model_type": "llama", "hidden_size": 64})
    assert {finding.field for finding in caught.value.findings} == {
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    }
    with pytest.raises(
        InputError, match="'qwen33' has no memory formula here: Unrecognized model identifier"
    ):
        read_shape(SMOLLM2 | {"model_type": "qwen33"})


TINY: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": 96,
    "pad_token_id": 0,
}


@pytest.mark.parametrize(
    ("model_type", "extra"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"tie_word_embeddings": True}),
        ("mistral", {}),
        ("qwen2", {}),
        ("qwen3", {"attention_bias": True}),
        ("smollm3", {}),
        ("granite", {"attention_bias": True, "mlp_bias": True}),
        ("gemma", {}),
        ("gemma3_text", {}),
    ],
)
def test_counts_and_names_agree_with_the_modelling_code(
    model_type: str, extra: dict[str, Any]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = TINY | extra
    if model_type == "qwen2":  # no head_dim of its own
        settings = settings | {"hidden_size": 64}
    config = AutoConfig.for_model(model_type, **settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = read_shape(config.to_diff_dict())
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    linears = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert shape.linear_weights + shape.vocab * shape.hidden == sum(
        linear.weight.numel() for linear in linears.values()
    )
    assert {"lm_head", *match_targets(shape, "all-linear").names} == linears.keys()
