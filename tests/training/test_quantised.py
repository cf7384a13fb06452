"""A quantised base in training keeps its weights as stored through an evaluation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.records import Row
from hashtune.training import quantised
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee
from hashtune.training.quantised import REPACKS
from hashtune.training.step import evaluate_loss

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


def as_on_avx512(base: Any) -> Any:
    """Whatever this CPU is: bitsandbytes repacks in plain torch, the kernel is what needs it."""
    found = [module for module in base.modules() if hasattr(module, REPACKS)]
    assert len(found) == 14, "bitsandbytes names it differently now"
    for module in found:
        setattr(module, REPACKS, True)
    return base


def weights(trainee: Trainee) -> dict[str, Tensor]:
    named = trainee.peft.named_parameters()
    return {n: p.detach().clone() for n, p in named if p.dtype == torch.uint8}


def gradient(trainee: Trainee, rows: list[Row]) -> Tensor:
    batch = collate(rows)
    sums = token_losses(trainee.hidden(batch), batch.labels, trainee.head)
    (parameter,) = trainee.parameters.values()
    (grad,) = torch.autograd.grad(sums.loss, parameter)
    return grad


@pytest.fixture
def make_nf4(
    make_soft: Callable[..., Trainee], make_base: Callable[..., Any], monkeypatch: Any
) -> Callable[[], Trainee]:
    """A prompt: its gradient passes through every layer of the base."""

    def make() -> Trainee:
        from hashtune.training import model

        right = model.prepare_quantised
        with monkeypatch.context() as patch:
            patch.setattr(model, "prepare_quantised", lambda base: right(as_on_avx512(base)))
            return make_soft("prompt", stored="nf4")

    return make


def test_an_evaluation_changes_neither_weights_nor_gradients(
    make_nf4: Callable[[], Trainee], make_row: Callable[[int, list[int]], Row]
) -> None:
    trainee, rows = make_nf4(), [make_row(1, [9])]
    stored, grad = weights(trainee), gradient(trainee, rows)
    assert len(stored) == 14
    evaluate_loss(trainee, rows, micro=1)
    assert all(torch.equal(tensor, stored[n]) for n, tensor in weights(trainee).items())
    assert torch.equal(gradient(trainee, rows), grad)
    states = [m.weight.quant_state for m in trainee.peft.modules() if hasattr(m, REPACKS)]
    assert not any(getattr(state, "packing_format_for_cpu", False) for state in states)


def test_planted_fault_weights_that_are_repacked_are_others(
    make_nf4: Callable[[], Trainee],
    make_row: Callable[[int, list[int]], Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantised, "REPACKS", "no_such_attribute")
    trainee = make_nf4()
    layer = trainee.peft.get_base_model().model.layers[0].self_attn.q_proj
    before = layer.weight.detach().clone()
    kernel = "bitsandbytes.functional.gemv_4bit"
    monkeypatch.setattr(kernel, lambda x, *others, **more: torch.zeros(*x.shape[:-1], 64))
    with torch.no_grad():
        layer.eval()(torch.ones(1, 64))
    assert not torch.equal(layer.weight.view(-1), before.view(-1))
