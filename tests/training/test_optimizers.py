"""Optimizers: hand-worked first updates, decay groups, and an exact round trip of the state."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hashtune.spec.schema import Optim
from hashtune.training.optimizers import build_optimizer, optimizer_tensors, restore_optimizer

MakeOptim = Callable[..., Optim]


def parameters() -> dict[str, nn.Parameter]:
    return {
        "a.matrix": nn.Parameter(torch.ones(2, 2)),
        "b.vector": nn.Parameter(torch.ones(3)),
    }


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


@pytest.mark.parametrize(("name", "slots"), [("adamw", 3), ("sgd", 1)])
def test_state_round_trip_gives_bit_equal_updates(
    name: str, slots: int, make_optim: MakeOptim
) -> None:
    optim = make_optim(name=name, weight_decay=0.1)
    params = parameters()
    optimizer = build_optimizer(params, optim)
    for seed in range(3):
        update(optimizer, params, seed)
    saved = {key: value.clone() for key, value in optimizer_tensors(optimizer, params).items()}
    assert len(saved) == 2 * slots

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
    assert saved["exp_avg.a.matrix" if name == "adamw" else "momentum_buffer.a.matrix"].dtype


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
