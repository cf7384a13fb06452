"""Where the adapter really lies: on the modules that method.targets matches, or a finding."""

from typing import Any

import pytest
import torch

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Method
from hashtune.training import targets
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.targets import adapted_names

SIZES = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 32},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0},
    **{"moe_intermediate_size": 16, "num_experts": 2, "num_experts_per_tok": 1},
}
ATTENTION = [f"{name}_proj" for name in "kovq"]
DENSE = [f"{name}_proj" for name in ("down", "gate", "up")]


def base_of(model_type: str, **more: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **SIZES, **more))


def build(base: Any, names: Any) -> Trainee:
    method = Method(
        **{"type": "lora", "variant": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0},
        **{"targets": names, "virtual_tokens": None},
    )
    return build_trainee(base, method, precision="fp32", seed=0)


def finding_of(base: Any, names: Any) -> Finding:
    with pytest.raises(InputError) as caught:
        build(base, names)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file) == ("target", "params.yaml")
    assert finding.field == "method.targets"
    return finding


@pytest.fixture
def mixed() -> Any:
    """Layer 0 has a dense MLP, layer 1 experts fused into parameters."""
    return base_of("qwen3_moe", mlp_only_layers=[0])


def test_what_carries_an_adapter_is_what_is_counted(mixed: Any) -> None:
    trainee = build(mixed, ATTENTION)
    assert trainee.targets == dict.fromkeys(ATTENTION, 2)
    assert adapted_names(trainee.peft) == sorted(
        f"model.layers.{layer}.self_attn.{name}" for layer in (0, 1) for name in ATTENTION
    )


@pytest.mark.parametrize("names", ["all-linear", DENSE + ATTENTION, ["re:.*"]], ids=str)
def test_targets_that_peft_gives_to_fused_experts_are_refused(mixed: Any, names: Any) -> None:
    """PEFT 0.21 reads gate_proj of the dense layer as the experts' gate_up_proj."""
    finding = finding_of(mixed, names)
    assert finding.message == (
        "PEFT puts the adapter on other modules of this base: it leaves out 3, first "
        "model.layers.0.mlp.down_proj, model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj; "
        "it takes also 2, first model.layers.1.mlp.experts, model.layers.1.mlp.experts.base_layer"
    )
    assert finding.fix == "method.targets=[k_proj,o_proj,q_proj,v_proj]"


def test_planted_without_the_check_the_counts_are_wrong(
    mixed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_check_adapted", lambda *_: None)
    trainee = build(mixed, "all-linear")
    assert trainee.targets == {"all-linear": 11}
    assert len(adapted_names(trainee.peft)) == 10


@pytest.mark.parametrize("name", ["gate_proj", "model.layers.0.mlp.gate_proj", "0.mlp.up_proj"])
def test_what_peft_refuses_is_a_finding(mixed: Any, name: str) -> None:
    finding = finding_of(mixed, [name, "q_proj"])
    assert finding.message.startswith("PEFT does not take it on this base: Cannot convert PEFT")
    assert finding.fix == "method.targets=[q_proj]"


def test_dense_layers_beside_experts_of_deepseek_are_refused() -> None:
    base = base_of(
        "deepseek_v3",
        **{"first_k_dense_replace": 1, "n_routed_experts": 2, "n_group": 1, "topk_group": 1},
        **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4},
        v_head_dim=8,
    )
    assert "it takes also" in finding_of(base, "all-linear").message


def test_a_router_that_gives_two_results_is_refused() -> None:
    finding = finding_of(base_of("llama4_text", num_local_experts=2), "all-linear")
    assert "matches 2 modules that are more than a product (Llama4Router)" in finding.message
    assert finding.fix is not None
    assert finding.fix.startswith("method.targets=[")
    assert "router" not in finding.fix


def test_the_fix_is_taken(mixed: Any) -> None:
    fix = finding_of(mixed, "all-linear").fix or ""
    names = fix.removeprefix("method.targets=[").removesuffix("]").split(",")
    again = base_of("qwen3_moe", mlp_only_layers=[0])
    assert sum(build(again, names).targets.values()) == 8
