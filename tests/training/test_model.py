"""The trainee: targets (C65), seeds, fp32 adapters, gradients everywhere."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Determinism, Method, Quantization
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import (
    Trainee,
    build_trainee,
    quantization_config,
    set_determinism,
)

MakeTrainee = Callable[..., Trainee]


def test_build_refuses_wrong_targets_before_peft(make_trainee: MakeTrainee) -> None:
    with pytest.raises(InputError, match=r"'v_projj' matches 0 modules; did you mean 'v_proj'\?"):
        make_trainee(targets=["q_proj", "v_projj"])


@pytest.mark.parametrize("other", ["input_layernorm", "embed_tokens", "lm_head", "re:lm_.*"])
def test_build_refuses_what_is_no_linear_module_of_a_block(
    other: str, make_trainee: MakeTrainee
) -> None:
    with pytest.raises(InputError, match=f"'{re.escape(other)}' matches 0 modules"):
        make_trainee(targets=["q_proj", other])


def test_a_pattern_adapts_what_it_matches_and_is_counted(make_trainee: MakeTrainee) -> None:
    pattern = r"re:model\.layers\.1\.(self_attn\.[qv]|mlp\.up)_proj"
    trainee = make_trainee(targets=[pattern, "k_proj"])
    assert trainee.targets == {pattern: 3, "k_proj": 2}
    start = "base_model.model.model.layers"
    adapted = ["0.self_attn.k", "1.mlp.up", "1.self_attn.k", "1.self_attn.q", "1.self_attn.v"]
    assert list(trainee.parameters) == [
        f"{start}.{name}_proj.lora_{side}.default.weight" for name in adapted for side in "AB"
    ]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_all_linear_begins_with_the_bits_of_peft_s_own_and_its_config_stays_small() -> None:
    """Three blocks of seven: from 20 names on PEFT keeps the shortest endings that say as much."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 9}
    config = AutoConfig.for_model("llama", num_hidden_layers=3, pad_token_id=0, **sizes)
    method = Method(
        type="lora",
        variant="lora",
        r=2,
        alpha=4.0,
        dropout=0.0,
        targets="all-linear",
        virtual_tokens=None,
    )
    trainee = build_trainee(
        AutoModelForCausalLM.from_config(config), method, precision="fp32", seed=7
    )
    assert trainee.targets == {"all-linear": 21}
    base = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(7)
    theirs = get_peft_model(
        base, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    own = {name: p for name, p in theirs.named_parameters() if p.requires_grad}
    assert own.keys() == trainee.parameters.keys()
    assert all(torch.equal(own[name], p) for name, p in trainee.parameters.items())
    assert trainee.peft.peft_config["default"].target_modules == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }


@pytest.mark.parametrize(
    ("targets", "same"),
    [
        (["v_proj", "q_proj"], ["q_proj", "v_proj"]),
        ([r"re:.*\.[qv]_proj"], ["q_proj", "v_proj"]),
        (["re:.*"], "all-linear"),
    ],
)
def test_how_targets_are_written_decides_no_bit(
    targets: list[str], same: str | list[str], make_trainee: MakeTrainee
) -> None:
    one, two = make_trainee(targets=targets), make_trainee(targets=same)
    assert one.parameters.keys() == two.parameters.keys()
    for name, parameter in one.parameters.items():
        assert torch.equal(parameter, two.parameters[name])


def test_a_model_of_another_shape_is_refused() -> None:
    method = Method(
        type="lora",
        variant="lora",
        r=2,
        alpha=4.0,
        dropout=0.0,
        targets="all-linear",
        virtual_tokens=None,
    )
    with pytest.raises(InputError, match="Linear has no backbone"):
        build_trainee(torch.nn.Linear(2, 2), method, precision="fp32", seed=0)


def test_seed_alone_decides_the_adapter(make_trainee: MakeTrainee) -> None:
    torch.manual_seed(1)
    one = make_trainee(seed=7)
    torch.manual_seed(99)
    torch.rand(5)
    same, other = make_trainee(seed=7), make_trainee(seed=8)
    assert list(one.parameters) == list(same.parameters) == sorted(one.parameters)
    assert len(one.parameters) == 8  # 2 layers, q and v, A and B
    for name, parameter in one.parameters.items():
        assert torch.equal(parameter, same.parameters[name])
        assert torch.equal(parameter, other.parameters[name]) == ("lora_B" in name)
    assert torch.rand(1) == _next_draw(make_trainee)


def _next_draw(make_trainee: MakeTrainee) -> torch.Tensor:
    make_trainee(seed=8)
    return torch.rand(1)


def test_only_the_adapter_is_trainable(make_trainee: MakeTrainee) -> None:
    trainee = make_trainee(targets="all-linear")
    trainable = {n for n, p in trainee.peft.named_parameters() if p.requires_grad}
    assert trainable == set(trainee.parameters)
    assert all("lora_" in name for name in trainable)
    assert len(trainable) == 2 * 2 * 7  # all seven linear layers of both blocks, not the head
    assert trainee.peft.training


@pytest.mark.parametrize(
    ("precision", "route"),
    [
        ("fp32", "fp32 adapter, fp32 base, no autocast"),
        ("bf16", "fp32 adapter, bf16 base, bf16 autocast"),
        ("fp16", "fp32 adapter, fp16 base, fp16 autocast"),
    ],
)
def test_the_route_is_read_off_the_model(
    make_trainee: MakeTrainee, precision: str, route: str
) -> None:
    trainee = make_trainee(precision=precision)
    assert trainee.route == route
    for parameter in trainee.parameters.values():  # planted: an adapter without fp32 copies
        parameter.data = parameter.data.to(torch.bfloat16)
    assert trainee.route == route.replace("fp32 adapter", "bf16 adapter without master weights")


def test_adapters_are_fp32_over_a_bf16_base(make_trainee: MakeTrainee) -> None:
    trainee = make_trainee(precision="bf16")
    assert {p.dtype for p in trainee.parameters.values()} == {torch.float32}
    frozen = {p.dtype for p in trainee.peft.parameters() if not p.requires_grad}
    assert frozen == {torch.bfloat16}
    with trainee.autocast():
        assert torch.is_autocast_enabled("cpu")
    assert isinstance(make_trainee().autocast(), contextlib.nullcontext)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_trainable_tensor_has_a_gradient_after_the_first_backward(
    precision: str, make_trainee: MakeTrainee, make_row: Callable[[int, list[int]], Row]
) -> None:
    trainee = make_trainee(precision=precision, targets="all-linear")
    batch = collate([make_row(1, [5, 4])])
    with trainee.autocast():
        token_losses(trainee.hidden(batch), batch.labels, trainee.head).loss.backward()
    for name, parameter in trainee.parameters.items():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32
        assert bool(parameter.grad.abs().sum() > 0) == ("lora_B" in name)  # B is zero, so A gets 0
    assert all(p.grad is None for p in trainee.peft.parameters() if not p.requires_grad)


def test_hidden_and_head_are_the_model_s_own_logits(
    make_trainee: MakeTrainee, make_row: Callable[[int, list[int]], Row]
) -> None:
    trainee = make_trainee()
    batch = collate([make_row(1, [6])])
    trainee.peft.eval()
    with torch.no_grad():
        ours = trainee.head(trainee.hidden(batch))
        theirs = trainee.peft(input_ids=batch.input_ids).logits
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_quantization_settings() -> None:
    assert quantization_config(Quantization(type="none", double_quant=False), "fp32") is None
    eight: Any = quantization_config(Quantization(type="int8", double_quant=False), "bf16")
    assert eight.load_in_8bit
    four: Any = quantization_config(Quantization(type="nf4", double_quant=True), "bf16")
    assert (four.load_in_4bit, four.bnb_4bit_quant_type) == (True, "nf4")
    assert four.bnb_4bit_use_double_quant
    assert four.bnb_4bit_compute_dtype == torch.bfloat16


def test_determinism_settings() -> None:
    try:
        set_determinism(Determinism(mode="strict", threads=1))
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 1
    finally:
        set_determinism(Determinism(mode="off", threads=1))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    "changed",
    [
        {"logits_scaling": 8.0},
        {"final_logit_softcapping": 30.0},
        {"logit_scale": 0.0625},
        {"lm_head_multiplier": 0.04},
    ],
)
def test_a_base_that_changes_its_logits_is_refused(
    make_base: Callable[..., Any], changed: dict[str, float]
) -> None:
    """Granite, Cohere and Falcon H1 scale and Gemma caps them: training on the bare head would be
    another loss."""
    base = make_base()
    for name, value in changed.items():
        setattr(base.config, name, value)
    method = Method(
        type="lora",
        variant="lora",
        r=2,
        alpha=4.0,
        dropout=0.0,
        targets="all-linear",
        virtual_tokens=None,
    )
    with pytest.raises(InputError, match="changes its logits"):
        build_trainee(base, method, precision="fp32", seed=0)
