"""Optimizers: hand-worked first updates, decay groups, and an exact round trip of the state."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hashtune.errors import InputError
from hashtune.spec.schema import Optim, OptimizerName
from hashtune.spec.training import CUDA_ONLY
from hashtune.training.optimizers import build_optimizer, optimizer_tensors, restore_optimizer

MakeOptim = Callable[..., Optim]
ON_CPU = [name for name in get_args(OptimizerName) if name not in CUDA_ONLY]


def parameters(size: int = 2) -> dict[str, nn.Parameter]:
    return {
        "a.matrix": nn.Parameter(torch.ones(size, size)),
        "b.vector": nn.Parameter(torch.ones(3)),
    }


def after(optim: Optim, gradients: Sequence[Any], start: Any = None) -> Tensor:
    """The matrix "a.matrix" (ones, or `start`) after updates with these gradients."""
    first = torch.as_tensor(gradients[0], dtype=torch.float32)
    matrix = torch.ones_like(first) if start is None else torch.tensor(start)
    params = {"a.matrix": nn.Parameter(matrix)}
    optimizer = build_optimizer(params, optim)
    for gradient in gradients:
        params["a.matrix"].grad = torch.as_tensor(gradient, dtype=torch.float32).clone()
        optimizer.step()
    return params["a.matrix"].detach()


def update(optimizer: torch.optim.Optimizer, params: dict[str, nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in params.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def test_adamw_first_update_by_hand_decay_spares_vectors(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim(lr=0.1, weight_decay=0.5))
    for parameter in params.values():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    # the first AdamW update is lr * sign(gradient); the matrix also decays by lr * 0.5
    assert params["a.matrix"].detach().unique().item() == pytest.approx(0.85, abs=1e-6)
    assert params["b.vector"].detach().unique().item() == pytest.approx(0.9, abs=1e-6)


def test_sgd_two_updates_by_hand(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim(name="sgd", lr=0.1, beta1=0.5, weight_decay=0.0))
    for _ in range(2):
        for parameter in params.values():
            parameter.grad = torch.full_like(parameter, 1.0)
        optimizer.step()
    # momentum 1, then 1.5: 1 - 0.1 * (1 + 1.5)
    assert params["a.matrix"].detach().unique().item() == pytest.approx(0.75, abs=1e-6)


def test_groups(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim(weight_decay=0.3))
    seen = [(group["weight_decay"], group["params"]) for group in optimizer.param_groups]
    assert [decay for decay, _ in seen] == [0.3, 0.0]
    assert seen[0][1][0] is params["a.matrix"]
    assert seen[1][1][0] is params["b.vector"]


def test_no_vectors_no_empty_group(make_optim: MakeOptim) -> None:
    only = {"a": nn.Parameter(torch.ones(2, 2))}
    assert len(build_optimizer(only, make_optim()).param_groups) == 1


def test_fused_adamw_is_adamw_but_for_rounding(make_optim: MakeOptim) -> None:
    generator = torch.Generator().manual_seed(3)
    gradients = [torch.randn(40, 30, generator=generator) for _ in range(5)]
    loop, fused = (
        after(make_optim(name=name, lr=0.1, weight_decay=0.5), gradients)
        for name in ("adamw", "adamw_fused")
    )
    assert torch.allclose(loop, fused, atol=1e-6, rtol=0)
    assert float((loop - 1).abs().max()) > 0.1


def test_adamw_8bit_first_update_by_hand(make_optim: MakeOptim) -> None:
    params = parameters(64)  # 4,096 elements: the smallest tensor whose moments are codes
    optimizer = build_optimizer(params, make_optim(name="adamw_8bit", lr=0.1, weight_decay=0.5))
    for parameter in params.values():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    assert params["a.matrix"].detach().unique().item() == pytest.approx(0.85, abs=1e-6)
    assert params["b.vector"].detach().unique().item() == pytest.approx(0.9, abs=1e-6)
    state = optimizer.state[params["a.matrix"]]
    assert (state["state1"].dtype, state["absmax1"].shape) == (torch.uint8, (16,))
    # equal values in a block are its maximum, which the scale holds: 0.1 * 0.5 and 0.001 * 0.25
    assert state["absmax1"].unique().item() == pytest.approx(0.05)
    assert state["absmax2"].unique().item() == pytest.approx(0.00025)
    assert optimizer.state[params["b.vector"]]["state1"].dtype == torch.float32


def test_adamw_8bit_stays_near_adamw(make_optim: MakeOptim) -> None:
    generator = torch.Generator().manual_seed(3)
    gradients = [torch.randn(64, 64, generator=generator) for _ in range(5)]
    exact, coded = (
        after(make_optim(name=name, lr=0.1, weight_decay=0.0), gradients)
        for name in ("adamw", "adamw_8bit")
    )
    moved, apart = (exact - 1).norm(), (exact - coded).norm()
    assert 0 < float(apart / moved) < 0.05


def test_adafactor_two_updates_by_hand(make_optim: MakeOptim) -> None:
    optim = make_optim(name="adafactor", lr=0.1, eps=1e-30, weight_decay=0.0)
    gradient = [[1.0, 2.0], [2.0, 4.0]]
    # rows (1 + 4) / 2 and (4 + 16) / 2, columns the same; V = row * column / mean(rows) is the
    # squared gradient, since its rank is 1: the update is 1 everywhere
    assert after(optim, [gradient]) == pytest.approx(torch.full((2, 2), 0.9), abs=1e-6)
    # three times that: V is 0.4257 + 0.5743 * 9 = 5.595 times the first (1 - 2 ** -0.8 = 0.4257),
    # the update 3 / sqrt(5.595) = 1.268, and its root mean square is clipped to 1
    tripled = [[3.0, 6.0], [6.0, 12.0]]
    assert after(optim, [gradient, tripled]) == pytest.approx(torch.full((2, 2), 0.8), abs=1e-6)
    # a third of it: 0.4257 + 0.5743 / 9 = 0.4895; (1 / 3) / sqrt(0.4895) = 0.4764, not clipped
    third = [[1 / 3, 2 / 3], [2 / 3, 4 / 3]]
    expected = torch.full((2, 2), 0.9 - 0.04764)
    assert after(optim, [gradient, third]) == pytest.approx(expected, abs=1e-5)


def test_adafactor_moves_a_matrix_of_zeros_as_far(make_optim: MakeOptim) -> None:
    """lora_B starts at zero; an update scaled by the parameter's size would leave it there."""
    optim = make_optim(name="adafactor", lr=0.1, eps=1e-30, weight_decay=0.0)
    moved = after(optim, [[[1.0, 2.0], [2.0, 4.0]]], start=[[0.0, 0.0], [0.0, 0.0]])
    assert moved == pytest.approx(torch.full((2, 2), -0.1), abs=1e-6)


def test_lion_two_updates_by_hand(make_optim: MakeOptim) -> None:
    optim = make_optim(name="lion", lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.5)
    # sign(0.1 * 1) after decay: 1 - 0.05 - 0.1; the momentum is 0.01
    assert after(optim, [[[1.0]]]).item() == pytest.approx(0.85)
    # 0.9 * 0.01 - 0.1 * 0.05 = 0.004 points against the gradient: 0.85 * 0.95 - 0.1
    assert after(optim, [[[1.0]], [[-0.05]]]).item() == pytest.approx(0.7075)
    # 0.9 * 0.01 - 0.1 * 0.2 = -0.011: 0.85 * 0.95 + 0.1
    assert after(optim, [[[1.0]], [[-0.2]]]).item() == pytest.approx(0.9075)


def quintic(value: float) -> float:
    """Five steps of Muon's polynomial on one singular value."""
    for _ in range(5):
        value = 3.4445 * value - 4.775 * value**3 + 2.0315 * value**5
    return value


def test_muon_first_update_by_hand(make_optim: MakeOptim) -> None:
    optim = make_optim(name="muon", lr=0.1, beta1=0.95, weight_decay=0.5)
    # a rotation times 3: both singular values are 1 / sqrt(2) of the norm, and stay equal
    moved = after(optim, [[[0.0, -3.0], [3.0, 0.0]]])
    size = 0.1 * 0.2 * math.sqrt(2) * quintic(1 / math.sqrt(2))
    expected = torch.tensor([[0.95, 0.95 + size], [0.95 - size, 0.95]])
    assert torch.allclose(moved, expected, atol=0.02 * size)  # torch iterates in bf16
    assert size > 0.01


def test_muon_leaves_vectors_and_tables_to_adamw(make_optim: MakeOptim) -> None:
    params = parameters()
    params["model.embed_tokens.weight"] = nn.Parameter(torch.ones(2, 2))
    optimizer = build_optimizer(params, make_optim(name="muon", lr=0.1, weight_decay=0.5))
    for parameter in params.values():
        parameter.grad = torch.full_like(parameter, 0.5)
    for group in optimizer.param_groups:
        group["lr"] = 0.2  # as the loop sets it before each update
    optimizer.step()
    assert params["b.vector"].detach().unique().item() == pytest.approx(0.8, abs=1e-6)
    table = params["model.embed_tokens.weight"].detach()
    assert table.unique().item() == pytest.approx(0.7, abs=1e-6)
    assert sorted(optimizer.state[params["a.matrix"]]) == ["momentum_buffer"]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1, 1]


@pytest.mark.parametrize("name", sorted(CUDA_ONLY))
def test_paged_state_needs_cuda(name: str, make_optim: MakeOptim) -> None:
    with pytest.raises(InputError, match=f"{name} pages its state") as caught:
        build_optimizer(parameters(), make_optim(name=name))
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("cuda-only", "optim.name")


@pytest.mark.parametrize("name", ON_CPU)
def test_weight_decay_spares_biases_and_norms_by_name(name: str, make_optim: MakeOptim) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads))
    params = dict(model.named_parameters())
    names = {id(parameter): name for name, parameter in params.items()}
    optimizer = build_optimizer(params, make_optim(name=name, weight_decay=0.3))
    decay = {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert decay.keys() == params.keys()
    spared = {name for name, value in decay.items() if value == 0.0}
    assert spared == {name for name in params if name.endswith("bias") or "norm" in name}
    assert len(spared) == 3 + 3  # q, k, v biases; two norms of the block and the last


@pytest.mark.parametrize("name", ON_CPU)
def test_state_round_trip_gives_bit_equal_updates(
    name: str, make_optim: MakeOptim, tmp_path: Path
) -> None:
    optim = make_optim(name=name, weight_decay=0.1)
    params = parameters(64) | {"c.matrix": nn.Parameter(torch.ones(64, 65))}
    optimizer = build_optimizer(params, optim)
    for seed in range(3):
        update(optimizer, params, seed)
    save_file(optimizer_tensors(optimizer, params), tmp_path / "state.safetensors")
    saved = load_file(tmp_path / "state.safetensors")

    copies = {n: nn.Parameter(p.detach().clone()) for n, p in params.items()}
    resumed = build_optimizer(copies, optim)
    restore_optimizer(resumed, copies, saved)
    for seed in range(3, 6):
        update(optimizer, params, seed)
        update(resumed, copies, seed)
    assert all(torch.equal(params[n], copies[n]) for n in params)
    again, first = optimizer_tensors(resumed, copies), optimizer_tensors(optimizer, params)
    assert again.keys() == first.keys()
    assert all(torch.equal(again[key], first[key]) for key in first)
    if name != "sgd":  # whose momentum is beta1 = 0.9 here, in one slot
        assert len(first) > len(params)


def test_counters_come_back_as_the_library_keeps_them(make_optim: MakeOptim) -> None:
    for name, kind in (("adamw", Tensor), ("adamw_8bit", int), ("adafactor", int)):
        params = parameters()
        optimizer = build_optimizer(params, make_optim(name=name))
        update(optimizer, params, 0)
        resumed = build_optimizer(params, make_optim(name=name))
        restore_optimizer(resumed, params, optimizer_tensors(optimizer, params))
        for built in (optimizer, resumed):
            step = built.state[params["a.matrix"]]["step"]
            assert isinstance(step, kind)
            assert int(step) == 1


def test_planted_fault_code_maps_in_common_cannot_be_saved(
    make_optim: MakeOptim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = parameters(64) | {"c.matrix": nn.Parameter(torch.ones(64, 65))}
    optimizer = build_optimizer(params, make_optim(name="adamw_8bit"))
    update(optimizer, params, 0)
    monkeypatch.setattr("hashtune.training.optimizers.CODE_MAPS", ())
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(optimizer_tensors(optimizer, params), tmp_path / "state.safetensors")


def test_planted_fault_lost_moments_are_seen(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim())
    update(optimizer, params, 0)
    copies = {n: nn.Parameter(p.detach().clone()) for n, p in params.items()}
    resumed = build_optimizer(copies, make_optim())
    update(optimizer, params, 1)
    update(resumed, copies, 1)
    assert not torch.equal(params["a.matrix"], copies["a.matrix"])


def test_restored_state_does_not_alias_the_loaded_tensors(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim())
    loaded: dict[str, Tensor] = {"exp_avg.a.matrix": torch.zeros(2, 2)}
    restore_optimizer(optimizer, params, loaded)
    optimizer.state[params["a.matrix"]]["exp_avg"].add_(1)
    assert loaded["exp_avg.a.matrix"].sum() == 0


def test_plain_sgd_has_no_state(make_optim: MakeOptim) -> None:
    params = parameters()
    optimizer = build_optimizer(params, make_optim(name="sgd", beta1=0.0))
    update(optimizer, params, 0)
    assert optimizer_tensors(optimizer, params) == {}


def test_state_of_an_unknown_parameter_is_refused(make_optim: MakeOptim) -> None:
    params = parameters()
    with pytest.raises(KeyError, match=r"c\.other"):
        restore_optimizer(
            build_optimizer(params, make_optim()), params, {"exp_avg.c.other": torch.ones(1)}
        )
