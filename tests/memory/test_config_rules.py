"""What no config.json can say: each rule with one that breaks it, and the known bases, which do
not."""

import json
from typing import Any

import pytest

from hashtune.errors import InputError
from hashtune.memory.config_rules import ACTIVATIONS, LIMITS, config_findings
from hashtune.memory.known_models import find_base, known_names
from hashtune.memory.shapes import read_shape

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
MIXTRAL = {"model_type": "mixtral"}
QWEN = {"model_type": "qwen3_moe"}
STARCODER = {"model_type": "starcoder2"}  # no family: transformers would build it
GPT2 = {"model_type": "gpt2", "hidden_size": None}
NESTED = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**12}}


def found(change: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(one.rule, one.field) for one in config_findings(LLAMA | change, file="mine.json")]


@pytest.mark.parametrize(
    ("change", "rule", "field"),
    [
        ({"num_attention_heads": 64, "hidden_size": 4100}, "config-heads", "num_attention_heads"),
        ({"num_key_value_heads": 64}, "config-heads", "num_key_value_heads"),
        ({"num_key_value_heads": 5}, "config-heads", "num_key_value_heads"),
        ({"head_dim": 127}, "config-heads", "head_dim"),
        ({"num_hidden_layers": 0}, "config-field", "num_hidden_layers"),
        ({"vocab_size": -5}, "config-field", "vocab_size"),
        ({"hidden_size": 4096.0}, "config-field", "hidden_size"),
        ({"hidden_size": float("nan")}, "config-field", "hidden_size"),
        ({"hidden_size": 10**18}, "config-size", "hidden_size"),
        ({"num_hidden_layers": 10**12}, "config-size", "num_hidden_layers"),
        ({"vocab_size": 10**400}, "config-size", "vocab_size"),
        ({"model_type": ["llama"]}, "config-field", "model_type"),
        ({"sliding_window": "big"}, "config-field", "sliding_window"),
        ({"hidden_act": "silo"}, "config-field", "hidden_act"),
        ({"hidden_act": ["silu"]}, "config-field", "hidden_act"),
        ({"tie_word_embeddings": "no"}, "config-field", "tie_word_embeddings"),
        (MIXTRAL | {"num_local_experts": -2}, "config-field", "num_local_experts"),
        (MIXTRAL | {"num_local_experts": 1}, "config-experts", "num_experts_per_tok"),
        (QWEN | {"num_experts": "many"}, "config-field", "num_experts"),
        (QWEN | {"decoder_sparse_step": 0}, "config-field", "decoder_sparse_step"),
        (QWEN | {"mlp_only_layers": "all"}, "config-field", "mlp_only_layers"),
        (GPT2 | {"n_embd": 10**18}, "config-size", "n_embd"),
        (STARCODER | {"num_hidden_layers": 10**12}, "config-size", "num_hidden_layers"),
        (STARCODER | {"n_layer": 10**12}, "config-size", "n_layer"),
        (STARCODER | {"vocab_size": -1}, "config-field", "vocab_size"),
        (STARCODER | {"hidden_size": "many"}, "config-field", "hidden_size"),
        (STARCODER | {"num_key_value_heads": 64}, "config-heads", "num_key_value_heads"),
        (NESTED, "config-size", "num_hidden_layers"),
    ],
    ids=str,
)
def test_what_no_decoder_has(change: dict[str, Any], rule: str, field: str) -> None:
    assert found(change) == [(rule, field)]
    (finding,) = config_findings(LLAMA | change, file="mine.json")
    assert finding.file == "mine.json"
    assert finding.fix


def test_every_fault_is_told_at_once() -> None:
    assert sorted(found({"num_hidden_layers": 0, "vocab_size": True, "head_dim": 10**9})) == [
        ("config-field", "num_hidden_layers"),
        ("config-field", "vocab_size"),
        ("config-size", "head_dim"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"head_dim": 128, "num_attention_heads": 24, "num_key_value_heads": 8},
        {"num_key_value_heads": 1},
        {"head_dim": None, "sliding_window": None},
        {"num_local_experts": 0},  # of a dense type, which has none
        STARCODER | {"num_key_value_heads": [8, 4], "num_local_experts": 0},
    ],
    ids=str,
)
def test_what_a_decoder_may_have(change: dict[str, Any]) -> None:
    assert found(change) == []


def test_the_known_bases_break_no_rule() -> None:
    for name in known_names():
        assert config_findings(find_base(name).config) == [], name


def test_the_activations_are_those_of_transformers() -> None:
    from transformers.activations import ACT2CLS

    assert set(ACTIVATIONS) == set(ACT2CLS)


def test_planted_fault_without_a_limit_the_size_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    large = LLAMA | {"vocab_size": 10**12}
    with pytest.raises(InputError, match="more than any model has"):
        read_shape(large)
    monkeypatch.setitem(LIMITS, "vocab_size", 10**15)
    assert read_shape(large).vocab == 10**12


def test_a_file_of_ones_own_is_named(tmp_path: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | {"num_key_value_heads": 64}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        find_base(str(tmp_path))
    (finding,) = caught.value.findings
    assert finding.file == str(file)
    assert finding.message == "64 key and value heads do not share 32 query heads"
    assert finding.fix == "a divisor of 32 (num_attention_heads)"
