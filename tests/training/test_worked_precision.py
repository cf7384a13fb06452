"""The reference's worked values of rounding, through the step that trains: what each route loses,
and what it does not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hashtune.records import Row
from hashtune.spec.precision import trained_type
from hashtune.spec.schema import Optim
from hashtune.training.batches import Batch, collate
from hashtune.training.gradients import clip_gradients
from hashtune.training.loss import LossSums, token_losses
from hashtune.training.model import DTYPES, Trainee
from hashtune.training.optimizers import build_optimizer
from hashtune.training.scaling import build_scaler, scaler_state
from hashtune.training.step import StepResult, train_step

MakeOptim = Callable[..., Optim]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Slope(Trainee):
    """One weight w; each trained token's loss is `factor` * w, computed in the type of the
    precision, so that the gradient of a step is `factor`."""

    factor: float = 1.0

    def losses(self, batch: Batch) -> LossSums:
        tokens = int((batch.labels[:, 1:] != -100).sum())
        weight = self.parameters["w"].to(DTYPES[self.precision])
        return LossSums((weight * self.factor).float().sum() * tokens, tokens, 0, 0.0)


def slope(
    factor: float, *, precision: Any, master_weights: bool = True, start: float = 1.0
) -> Slope:
    kept = DTYPES[trained_type(precision, master_weights=master_weights)]
    weight = nn.Parameter(torch.tensor([start], dtype=kept))
    return Slope(None, {"w": weight}, precision, factor=factor)


def row(number: int = 0) -> Row:
    return Row(number, ["a"], [2], [5, 6], [-100, 6])


def plain(make_optim: MakeOptim, trainee: Trainee, lr: float) -> Any:
    optim = make_optim(name="sgd", beta1=0.0, weight_decay=0.0, lr=lr)
    return build_optimizer(trainee.parameters, optim)


def step(trainee: Trainee, optimizer: Any, *, rows: int = 1, lr: float, **more: Any) -> StepResult:
    settings = {"micro": 1, "lr": lr, "grad_clip": 1e9, **more}
    return train_step(trainee, optimizer, [row(n) for n in range(rows)], **settings)


@pytest.mark.parametrize(
    ("master_weights", "expected"),
    [(True, 0.9), (False, 1.0)],  # 1 - 100 * 0.001; 0.001 < 2^-9, half of bf16's step below 1
)
def test_100_updates_of_a_thousandth(
    master_weights: bool, expected: float, make_optim: MakeOptim
) -> None:
    assert 2.0**-9 < 0.002
    trainee = slope(1.0, precision="bf16", master_weights=master_weights)
    optimizer = plain(make_optim, trainee, 1e-3)
    results = [step(trainee, optimizer, lr=1e-3) for _ in range(100)]
    assert all(result.applied and result.grad_norm == 1.0 for result in results)
    assert trainee.parameters["w"].item() == pytest.approx(expected, abs=1e-5)
    if not master_weights:
        assert trainee.parameters["w"].item() == 1.0


def gradient_of(trainee: Slope, make_optim: MakeOptim, rows: int) -> float:
    """The weight falls from 0 by lr times the gradient, with an lr of 1."""
    result = step(trainee, plain(make_optim, trainee, 1.0), rows=rows, lr=1.0)
    assert result.applied
    return -trainee.parameters["w"].item()


def test_a_thousand_micro_batches_of_a_hundredth(make_optim: MakeOptim) -> None:
    """Micro-batches are added up in the type of the parameter: 10.01 in fp32, since 0.01 comes from
    bf16 products as 0.010009766. In bf16 the sum stops at 4.0, where numbers lie 2^-5 = 0.031 apart
    and half of that is more than 0.01."""
    thousand = {"precision": "bf16", "start": 0.0}
    master = slope(10.0, **thousand)  # a thousandth of it from each micro-batch
    assert gradient_of(master, make_optim, 1000) == pytest.approx(10.009766, abs=1e-4)
    without = slope(10.0, master_weights=False, **thousand)
    assert gradient_of(without, make_optim, 1000) == 4.0
    # of 16, an ordinary accumulation, nothing much is lost
    few = slope(10.0, master_weights=False, **thousand)
    assert gradient_of(few, make_optim, 16) == pytest.approx(10.0, rel=2.0**-7)


def uniform(logits: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda states: logits.expand(len(states), -1)


def test_the_loss_of_a_thousand_tokens_is_summed_in_fp32() -> None:
    """Logits 4.59375 and 0 in bf16: ln(1 + e^-4.59375) = 0.010064 for each token. The sum of 1,000
    is 10.06; in bf16 it would stop at 4.0."""
    each = math.log1p(math.exp(-4.59375))
    logits = torch.tensor([[4.59375, 0.0]], dtype=BF16)
    hidden, labels = torch.zeros(1, 1001, 1, dtype=BF16), torch.zeros(1, 1001, dtype=torch.int64)
    sums = token_losses(hidden, labels, uniform(logits))
    assert sums.loss.dtype == FP32
    assert float(sums.loss) == pytest.approx(1000 * each, rel=1e-5)
    stalled = torch.zeros((), dtype=BF16)
    for _ in range(1000):
        stalled = stalled + torch.tensor(each, dtype=BF16)
    assert float(stalled) == 4.0


@pytest.mark.parametrize("words", [151_936, 128_256, 512])
def test_uniform_logits_cost_the_log_of_the_vocabulary(words: int) -> None:
    """ln 151,936 = 11.93: where a base that predicts nothing begins."""
    labels = torch.tensor([[-100, 3, 7]])
    sums = token_losses(torch.zeros(1, 3, 1), labels, uniform(torch.zeros(1, words)))
    assert float(sums.loss) / sums.tokens == pytest.approx(math.log(words), rel=1e-6)
    assert sums.entropy / sums.tokens == pytest.approx(math.log(words), rel=1e-5)
    assert round(math.log(151_936), 1) == 11.9


def scaler_at(trainee: Trainee, scale: float) -> Any:
    state = {"scale": scale, "growth_factor": 2.0, "backoff_factor": 0.5}
    return build_scaler(trainee, {**state, "growth_interval": 2000, "_growth_tracker": 0})


def test_60000_twice_overflows_fp16_is_skipped_and_recovers(make_optim: MakeOptim) -> None:
    """A scale of 60,000 comes back through a factor of 2 as 120,000 > 65,504: infinite. The step is
    skipped, the scale halves, and 30,000 * 2 = 60,000 gives the gradient of 2."""
    trainee = slope(2.0, precision="fp16")
    optimizer, scaler = plain(make_optim, trainee, 0.25), scaler_at(trainee, 60_000.0)
    skipped = step(trainee, optimizer, lr=0.25, scaler=scaler)
    assert (skipped.applied, skipped.grad_norm, skipped.loss) == (False, math.inf, 2.0)
    assert trainee.parameters["w"].item() == 1.0
    assert trainee.parameters["w"].grad is None
    assert scaler_state(scaler)["scale"] == 30_000.0  # type: ignore[index]
    taken = step(trainee, optimizer, lr=0.25, scaler=scaler)
    assert (taken.applied, taken.grad_norm) == (True, 2.0)
    assert trainee.parameters["w"].item() == 0.5  # 1 - 0.25 * 2


def test_60000_twice_is_finite_in_bf16_which_needs_no_scale(make_optim: MakeOptim) -> None:
    trainee = slope(120_000.0, precision="bf16")
    assert build_scaler(trainee, None) is None
    result = step(trainee, plain(make_optim, trainee, 1e-6), lr=1e-6)
    assert result.applied
    assert result.grad_norm == pytest.approx(120_000, rel=2.0**-8)
    lost = slope(120_000.0, precision="fp16")
    assert not step(lost, plain(make_optim, lost, 1e-6), lr=1e-6).applied


def small_gradient(make_optim: MakeOptim, precision: str, scale: float | None) -> float:
    """Of a loss of 1e-8 * w: what reaches w with this scale."""

    class Small(Slope):
        def losses(self, batch: Batch) -> LossSums:
            sums = super().losses(batch)
            return LossSums(sums.loss * 1e-8, sums.tokens, 0, 0.0)

    made = slope(1.0, precision=precision, start=0.0)
    trainee = Small(None, made.parameters, made.precision)
    optimizer = plain(make_optim, trainee, 1.0)
    step(trainee, optimizer, lr=1.0, scaler=scaler_at(trainee, scale) if scale else None)
    return -trainee.parameters["w"].item()


def test_1e_8_underflows_fp16_and_the_scale_saves_it(make_optim: MakeOptim) -> None:
    """fp16's smallest number is 2^-24 = 6e-8; 1e-8 * 2^16 = 6.55e-4 is one of its ordinary ones, to
    11 bits. bf16 has the exponents of fp32."""
    assert small_gradient(make_optim, "fp16", None) == 0.0
    assert small_gradient(make_optim, "fp16", 2.0**16) == pytest.approx(1e-8, rel=2.0**-11)
    assert small_gradient(make_optim, "bf16", None) == pytest.approx(1e-8, rel=2.0**-8)


def test_a_fresh_run_of_fp16_begins_with_2_to_the_16th() -> None:
    assert scaler_state(build_scaler(slope(1.0, precision="fp16"), None)) == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }


def test_a_gradient_of_norm_5_is_clipped_to_norm_1() -> None:
    """(3, 4) has the norm 5, which is told; (0.6, 0.8) is left. A norm below 1 stays."""
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    assert clip_gradients([weight], 1.0) == pytest.approx(5.0, abs=1e-6)
    assert weight.grad.tolist() == pytest.approx([0.6, 0.8], abs=1e-6)
    weight.grad = torch.tensor([0.3, 0.4])
    assert clip_gradients([weight], 1.0) == pytest.approx(0.5)
    assert torch.equal(weight.grad, torch.tensor([0.3, 0.4]))


def test_the_norm_is_taken_over_all_parameters_together() -> None:
    one, other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, 1))
    one.grad, other.grad = torch.tensor([3.0]), torch.tensor([[4.0]])
    assert clip_gradients([one, other], 1.0) == pytest.approx(5.0)
    assert (one.grad.item(), other.grad.item()) == pytest.approx((0.6, 0.8), abs=1e-6)


def test_rows_of_this_file_have_one_target() -> None:
    assert int((collate([row()]).labels[:, 1:] != -100).sum()) == 1
