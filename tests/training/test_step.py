"""One optimizer step: C25, independence of the split into micro-batches, the gradient guard."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.training.batches import Batch
from hashtune.training.layouts import micro_batches
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan, targets
from hashtune.training.step import evaluate_loss, train_step


class Recorder:
    """An optimizer that keeps the gradients it was given and updates nothing."""

    def __init__(self, trainee: Trainee) -> None:
        self.trainee = trainee
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.0}]
        self.seen: dict[str, Tensor] | None = None

    def step(self) -> None:
        self.seen = {n: p.grad.clone() for n, p in self.trainee.parameters.items()}  # type: ignore[union-attr]

    def zero_grad(self, set_to_none: bool) -> None:
        assert set_to_none
        for parameter in self.trainee.parameters.values():
            parameter.grad = None


@dataclass(frozen=True)
class Table(Trainee):
    """Two logits per input id, label 0: token id i has the loss that `losses[i]` says."""

    def hidden(self, batch: Batch) -> Tensor:
        return self.parameters["table"][batch.input_ids]

    def head(self, states: Tensor) -> Tensor:
        return states


class Modes:
    def eval(self) -> None: ...

    def train(self) -> None: ...


def table(*losses: float) -> Trainee:
    logits = [[-loss, math.log1p(-math.exp(-loss))] for loss in losses]
    return Table(Modes(), {"table": nn.Parameter(torch.tensor(logits))}, "fp32")


def constant_row(token: int, trained: int) -> Row:
    return Row(token, [f"e{token}"], [trained + 1], [token] * (trained + 1), [-100] + [0] * trained)


def step(trainee: Trainee, rows: Sequence[Row], *, micro: int, grad_clip: float = 1e9) -> Any:
    recorder: Any = Recorder(trainee)
    result = train_step(trainee, recorder, rows, micro=micro, lr=0.25, grad_clip=grad_clip)
    assert all(parameter.grad is None for parameter in trainee.parameters.values())
    return result, recorder


@pytest.mark.parametrize("micro", [1, 2])
def test_c25_mean_over_tokens_never_mean_of_means(micro: int) -> None:
    result, _ = step(table(1.0, 3.0), [constant_row(0, 2), constant_row(1, 8)], micro=micro)
    assert result.loss == pytest.approx(2.6, abs=1e-6)  # 26 / 10, not (1 + 3) / 2
    assert (result.trained_tokens, result.tokens, result.applied) == (10, 12, True)
    assert result.accuracy == 0.0  # p(label) is e^-1 < 1/2 and e^-3


@pytest.mark.parametrize("micro", [1, 2])
def test_reference_value(micro: int) -> None:
    result, _ = step(table(1.0, 0.5), [constant_row(0, 2), constant_row(1, 6)], micro=micro)
    assert result.loss == pytest.approx(0.625, abs=1e-6)  # (2 * 1.0 + 6 * 0.5) / 8, not 0.75
    assert result.accuracy == 6 / 8  # e^-0.5 > 1/2


def test_c25_gradients_by_hand() -> None:
    """d loss / d logit of the label = count / total * (p - 1)."""
    _, recorder = step(table(1.0, 3.0), [constant_row(0, 2), constant_row(1, 8)], micro=1)
    seen = recorder.seen["table"][:, 0].tolist()
    assert seen == pytest.approx([0.2 * (math.exp(-1) - 1), 0.8 * (math.exp(-3) - 1)], abs=1e-6)
    assert recorder.param_groups[0]["lr"] == 0.25


def test_the_split_into_micro_batches_changes_nothing(
    make_trainee: Callable[..., Trainee], plan: Plan
) -> None:
    trainee = make_trainee(targets="all-linear")
    with torch.no_grad():  # lora_B starts at zero, which would hide lora_A's gradients
        for name, parameter in trainee.parameters.items():
            if "lora_B" in name:
                parameter.copy_(torch.linspace(-0.05, 0.05, parameter.numel()).view_as(parameter))
    rows = plan.rows[:5]  # the last micro-batch of 2 and of 4 is a partial one
    whole, full = step(trainee, rows, micro=5)
    for micro in (1, 2, 4):
        result, recorder = step(trainee, rows, micro=micro)
        assert result.loss == pytest.approx(whole.loss, abs=1e-6)
        assert result.entropy == pytest.approx(whole.entropy, abs=1e-5)
        assert (result.accuracy, result.tokens) == (whole.accuracy, whole.tokens)
        for name, gradient in recorder.seen.items():
            assert torch.allclose(gradient, full.seen[name], atol=1e-6, rtol=0), (micro, name)
    assert max(float(g.abs().max()) for g in full.seen.values()) > 1e-3  # 1e-6 says something


def test_a_micro_batch_without_targets_adds_nothing() -> None:
    silent = Row(2, ["s"], [3], [0, 1, 0], [0, -100, -100])  # the first label is no target
    result, recorder = step(table(1.0, 3.0), [silent, constant_row(1, 2)], micro=1)
    assert result.loss == pytest.approx(3.0, abs=1e-6)
    assert result.trained_tokens == 2
    assert recorder.seen["table"][0].tolist() == [0.0, 0.0]


def test_a_step_without_any_target_has_loss_zero_and_is_not_applied() -> None:
    silent = Row(2, ["s"], [3], [0, 1, 0], [0, -100, -100])
    result, recorder = step(table(1.0, 3.0), [silent], micro=1)
    assert (result.loss, result.trained_tokens, result.applied) == (0.0, 0, False)
    assert recorder.seen is None


def test_c20_a_row_without_targets_beside_a_good_one() -> None:
    """Labels all -100, in a micro-batch of its own and in one with the good row."""
    cut = Row(2, ["cut"], [3], [0, 0, 0], [-100, -100, -100])
    good = constant_row(1, 2)
    alone, _ = step(table(1.0, 3.0), [good], micro=1)
    for rows, micro in (([cut, good], 1), ([cut, good], 2), ([good, cut], 2)):
        result, recorder = step(table(1.0, 3.0), rows, micro=micro)
        assert (result.loss, result.trained_tokens, result.applied) == (alone.loss, 2, True)
        assert recorder.seen["table"][0].tolist() == [0.0, 0.0]
    assert alone.loss == pytest.approx(3.0, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_step_is_not_applied(bad: float) -> None:
    trainee = table(1.0, 3.0)
    with torch.no_grad():
        trainee.parameters["table"][1, 1] = bad
    before = trainee.parameters["table"].detach().clone()
    result, recorder = step(trainee, [constant_row(0, 2), constant_row(1, 2)], micro=1)
    assert not result.applied
    assert recorder.seen is None
    assert torch.equal(trainee.parameters["table"].nan_to_num(7), before.nan_to_num(7))


def test_gradient_is_clipped_and_the_norm_before_is_told() -> None:
    rows = [constant_row(0, 1)]
    free, unclipped = step(table(1.0), rows, micro=1)
    clipped, recorder = step(table(1.0), rows, micro=1, grad_clip=0.1)
    # the gradient is (p - 1, 1 - p), p = e^-1
    assert clipped.grad_norm == free.grad_norm == pytest.approx(math.sqrt(2) * (1 - math.exp(-1)))
    assert float(recorder.seen["table"].norm()) == pytest.approx(0.1, rel=1e-4)
    assert float(unclipped.seen["table"].norm()) == pytest.approx(free.grad_norm)


def test_groups_and_targets() -> None:
    rows = [constant_row(0, n) for n in (1, 2, 3)]
    assert [len(group) for group in micro_batches(rows, 2)] == [2, 1]
    assert targets(rows) == 6
    assert targets([Row(0, ["a"], [2], [5, 6], [5, -100])]) == 0


SILENT = Row(2, ["s"], [3], [0, 1, 0], [0, -100, -100])  # the first label is no target


@pytest.mark.parametrize("micro", [1, 2, 4])
@pytest.mark.parametrize("layout", ["rows", "length_grouped"])
def test_eval_rows_without_targets_leave_the_mean_as_it_is(micro: int, layout: Any) -> None:
    """(2 * 1.0 + 8 * 3.0) / 10; a mean over rows, or a loss of 0 for the silent one, is lower."""
    rows = [SILENT, constant_row(0, 2), SILENT, constant_row(1, 8)]
    result = evaluate_loss(table(1.0, 3.0), rows, micro=micro, layout=layout)
    assert result.loss == pytest.approx(2.6, abs=1e-6)
    assert result.accuracy == 0.0


@pytest.mark.parametrize("rows", [[], [SILENT], [SILENT, SILENT]])
def test_eval_rows_without_any_target_have_no_loss(rows: list[Row]) -> None:
    """A loss of 0 would win checkpoint.select=best."""
    with pytest.raises(InputError) as caught:
        evaluate_loss(table(1.0, 3.0), rows, micro=1)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("no-trained-token", "data.eval")


def test_eval_loss_is_a_mean_over_tokens_and_draws_no_random_number(
    make_trainee: Callable[..., Trainee], plan: Plan
) -> None:
    rows = [constant_row(0, 2), constant_row(1, 8)]
    assert evaluate_loss(table(1.0, 3.0), rows, micro=1).loss == pytest.approx(2.6, abs=1e-6)
    trainee = make_trainee(dropout=0.5)
    state = torch.get_rng_state()
    one = evaluate_loss(trainee, plan.eval_rows, micro=1)
    assert one == evaluate_loss(trainee, plan.eval_rows, micro=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert trainee.peft.training
    assert all(parameter.grad is None for parameter in trainee.parameters.values())
