"""The trainee: targets (C65), seeds, fp32 adapters, gradients everywhere."""

import contextlib
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
    check_targets,
    quantization_config,
    set_determinism,
)

MODULES = ["", "model", "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"]
MakeTrainee = Callable[..., Trainee]


def test_c65_each_wrong_target_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        check_targets(MODULES, ["q_proj", "v_projj", "qproj"])
    found = [(f.field, f.message) for f in caught.value.findings]
    assert found == [
        ("method.targets[1]", "'v_projj' matches 0 modules; did you mean 'v_proj'?"),
        ("method.targets[2]", "'qproj' matches 0 modules; did you mean 'q_proj'?"),
    ]


def test_targets_that_match() -> None:
    check_targets(MODULES, ["q_proj", "self_attn.v_proj"])
    check_targets(MODULES, "all-linear")


def test_a_part_of_a_name_is_no_match() -> None:
    with pytest.raises(InputError, match="'proj' matches 0 modules"):
        check_targets(MODULES, ["proj"])


def test_build_refuses_wrong_targets_before_peft(make_trainee: MakeTrainee) -> None:
    with pytest.raises(InputError, match=r"'v_projj' matches 0 modules; did you mean 'v_proj'\?"):
        make_trainee(targets=["q_proj", "v_projj"])


def test_build_refuses_a_module_that_is_no_linear_layer(make_trainee: MakeTrainee) -> None:
    with pytest.raises(InputError, match="'input_layernorm' matches 0 modules"):
        make_trainee(targets=["q_proj", "input_layernorm"])


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


@pytest.mark.parametrize("changed", [{"logits_scaling": 8.0}, {"final_logit_softcapping": 30.0}])
def test_a_base_that_changes_its_logits_is_refused(
    make_base: Callable[..., Any], changed: dict[str, float]
) -> None:
    """Granite scales and Gemma caps them: training on the bare head would be another loss."""
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
