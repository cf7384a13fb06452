"""Every optimizer and schedule against its formula or library: whatever the spec can name.

The formulas are written out once more, in float64, and followed for six updates with gradients that
change their size and sign; a name without a formula turns the first test red.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from hashtune.spec.schema import Optim, OptimizerName, Schedule
from hashtune.spec.training import CUDA_ONLY
from hashtune.training import optimizers
from hashtune.training.optimizers import build_optimizer
from hashtune.training.schedules import lr_at

MakeOptim = Callable[..., Optim]
Formula = Callable[[Tensor, list[Tensor], "Settings"], Tensor]
LR, BETA1, BETA2, EPS, DECAY = 0.05, 0.9, 0.95, 1e-8, 0.1
SCHEDULES = get_args(Schedule.model_fields["name"].annotation)
SHAPES: dict[str, tuple[int, ...]] = {"a.matrix": (6, 4), "b.vector": (5,)}


class Settings:
    """What a formula takes beside parameter and gradients: vectors do not decay."""

    def __init__(self, ndim: int, lr: float = LR) -> None:
        self.lr, self.decay = lr, DECAY if ndim >= 2 else 0.0


def adamw(x: Tensor, gradients: list[Tensor], s: Settings) -> Tensor:
    """Loshchilov and Hutter 2017, arXiv 1711.05101, algorithm 2."""
    m = v = torch.zeros_like(x)
    for t, g in enumerate(gradients, start=1):
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g**2
        step = (m / (1 - BETA1**t)) / ((v / (1 - BETA2**t)).sqrt() + EPS)
        x = x - s.lr * (step + s.decay * x)
    return x


def sgd(x: Tensor, gradients: list[Tensor], s: Settings) -> Tensor:
    """torch.optim.SGD: decay is part of the gradient, the first momentum is the first gradient."""
    momentum = None
    for g in gradients:
        full = g + s.decay * x
        momentum = full if momentum is None else BETA1 * momentum + full
        x = x - s.lr * momentum
    return x


def lion(x: Tensor, gradients: list[Tensor], s: Settings) -> Tensor:
    """Chen et al. 2023, arXiv 2302.06675, algorithm 2."""
    m = torch.zeros_like(x)
    for g in gradients:
        x = x - s.lr * ((BETA1 * m + (1 - BETA1) * g).sign() + s.decay * x)
        m = BETA2 * m + (1 - BETA2) * g
    return x


def adafactor(x: Tensor, gradients: list[Tensor], s: Settings) -> Tensor:
    """Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 and 5 with a learning rate of ours."""
    rows = columns = vector = torch.zeros(())
    for t, g in enumerate(gradients, start=1):
        kept, square = 1 - t**-0.8, g**2 + EPS
        if x.ndim == 2:
            rows = kept * rows + (1 - kept) * square.sum(1)
            columns = kept * columns + (1 - kept) * square.sum(0)
            second = torch.outer(rows, columns) / rows.sum()
        else:
            vector = kept * vector + (1 - kept) * square
            second = vector
        step = g / second.sqrt()
        step = step / max(1.0, float(step.square().mean().sqrt()))
        x = x - s.lr * (step + s.decay * x)
    return x


def muon(x: Tensor, gradients: list[Tensor], s: Settings) -> Tensor:
    """Liu et al. 2025, arXiv 2502.16982: Nesterov momentum, five steps of the quintic on its
    singular values, scaled to AdamW's size; vectors are AdamW's."""
    if x.ndim < 2:
        return adamw(x, gradients, s)
    m = torch.zeros_like(x)
    for g in gradients:
        m = BETA1 * m + (1 - BETA1) * g
        u, sigma, v = torch.linalg.svd(BETA1 * m + (1 - BETA1) * g, full_matrices=False)
        sigma = sigma / sigma.norm()
        for _ in range(5):
            sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
        size = 0.2 * math.sqrt(max(x.shape))
        x = x - s.lr * (size * u @ torch.diag(sigma) @ v + s.decay * x)
    return x


FORMULAS: dict[str, tuple[Formula, float]] = {  # and how far fp32 may be from it
    "adamw": (adamw, 1e-6),
    "adamw_fused": (adamw, 1e-6),
    "adamw_8bit": (adamw, 1e-6),  # codes from 4,096 elements on: test_optimizers.py
    "sgd": (sgd, 1e-6),
    "lion": (lion, 1e-6),
    "adafactor": (adafactor, 1e-6),
    "muon": (muon, 4e-3),  # torch iterates in bf16
}
PAGED = {"paged_adamw_8bit": 8, "paged_adamw_32bit": 32}  # bits of a moment


def test_every_optimizer_has_a_formula() -> None:
    assert FORMULAS.keys() | PAGED.keys() == set(get_args(OptimizerName))
    assert PAGED.keys() == CUDA_ONLY.keys()


def gradients() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(11)
    return [
        {
            name: torch.randn(shape, generator=generator, dtype=torch.float64) * size
            for name, shape in SHAPES.items()
        }
        for size in (1.0, 0.3, 2.0, -1.0, 0.1, 5.0)
    ]


def start() -> dict[str, Tensor]:
    return {
        name: torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64).view(shape)
        for name, shape in SHAPES.items()
    }


def trained(optim: Optim) -> dict[str, Tensor]:
    params = {name: nn.Parameter(value.float()) for name, value in start().items()}
    optimizer = build_optimizer(params, optim)
    for each in gradients():
        for name, parameter in params.items():
            parameter.grad = each[name].float()
        optimizer.step()
    return {name: parameter.detach().double() for name, parameter in params.items()}


def furthest(name: str, optim: Optim) -> float:
    """The largest difference of any element from the formula's."""
    formula, _ = FORMULAS[name]
    found = trained(optim)
    return max(
        float(
            (found[key] - formula(x, [g[key] for g in gradients()], Settings(x.ndim))).abs().max()
        )
        for key, x in start().items()
    )


def settings(name: str, **changes: Any) -> dict[str, Any]:
    given = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "weight_decay": DECAY}
    return {"name": name, **given, **changes}


@pytest.mark.parametrize("name", FORMULAS)
def test_six_updates_are_those_of_the_formula(name: str, make_optim: MakeOptim) -> None:
    assert furthest(name, make_optim(**settings(name))) < FORMULAS[name][1]


@pytest.mark.parametrize("name", FORMULAS)
def test_planted_fault_another_setting_is_seen(name: str, make_optim: MakeOptim) -> None:
    """The tolerance tells a learning rate, a momentum or a decay that did not arrive."""
    changed: list[dict[str, float]] = [{"lr": 0.06}, {"weight_decay": 0.0}]
    changed += [] if name == "adafactor" else [{"beta1": 0.5}]
    changed += [] if name in ("sgd", "muon", "adafactor") else [{"beta2": 0.6}]
    for change in changed:
        optim = make_optim(**settings(name, **change))
        assert furthest(name, optim) > FORMULAS[name][1], change


@pytest.mark.parametrize(("name", "bits"), PAGED.items())
def test_paged_optimizers_are_bitsandbytes_adamw_with_paged_state(
    name: str, bits: int, make_optim: MakeOptim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a CPU can tell of them: which class is built, and how."""
    built: list[dict[str, Any]] = []
    monkeypatch.setattr("bitsandbytes.optim.AdamW", lambda groups, **given: built.append(given))
    for each in (name, "adamw_8bit"):
        optimizers.BUILDERS[each]([], make_optim(**settings(each)))
    given = {"lr": LR, "betas": (BETA1, BETA2), "eps": EPS}
    assert built == [
        {**given, "optim_bits": bits, "is_paged": True},
        {**given, "optim_bits": 8, "is_paged": False},
    ]


def schedule(name: Any, **changes: Any) -> Schedule:
    fields: dict[str, Any] = dict.fromkeys(Schedule.model_fields)
    wsd = {"decay": "linear", "decay_fraction": 0.2} if name == "wsd" else {}
    return Schedule(
        **{**fields, "name": name, "warmup_steps": 10, "min_lr_ratio": 0.0, **wsd, **changes}
    )


def library(name: str, point: int) -> float:
    """transformers' factor at a point of 0 to 100, 10 of them warm-up."""
    from transformers import optimization

    warm = {"num_warmup_steps": 10}
    if name == "wsd":
        shape = {"warmup_type": "linear", "decay_type": "linear", "min_lr_ratio": 0.0}
        phases = {"num_stable_steps": 70, "num_decay_steps": 20, "num_cycles": 0.5}
        return float(
            optimization._get_wsd_scheduler_lambda(point, **warm, **phases, **shape)  # type: ignore[arg-type]
        )
    total = {} if name == "constant" else {"num_training_steps": 100}
    cycles = {"num_cycles": 0.5} if name == "cosine" else {}
    factor = getattr(optimization, f"_get_{name}_schedule_with_warmup_lr_lambda")
    return float(factor(point, **warm, **total, **cycles))


def points(name: str) -> Sequence[float]:
    """Of 101 updates; the point of an update in the warm-up is the one after it, as none is made at
    a rate of 0, and update 10 is made at the point of the peak again."""
    return [library(name, update + 1 if update < 10 else update) for update in range(101)]


def test_there_are_four_schedules() -> None:
    assert sorted(SCHEDULES) == ["constant", "cosine", "linear", "wsd"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_the_curve_of_transformers(name: str) -> None:
    ours = [lr_at(n, peak=1.0, total=101, schedule=schedule(name)) for n in range(101)]
    assert ours == pytest.approx(points(name), abs=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_planted_fault_another_warmup_is_another_curve(name: str) -> None:
    ours = [
        lr_at(n, peak=1.0, total=101, schedule=schedule(name, warmup_steps=11)) for n in range(101)
    ]
    assert ours != pytest.approx(points(name), abs=1e-3)
