"""Chunked cross-entropy equals the full one; only trained positions count."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hashtune.training import loss as losses
from hashtune.training.loss import token_losses

VOCABULARY, HIDDEN = 11, 5
LABELS = torch.tensor([[-100, 3, -100, 4, 5, 10], [9, -100, 2, 0, 1, -100]])  # 4 + 3 targets


def problem() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(2, 6, HIDDEN, generator=generator, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=torch.float64)
    return hidden.requires_grad_(), weight.requires_grad_()


class Doubles(Tensor):
    """float64 logits that stay float64 under .float(), so that 1e-12 can be asked for."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is Tensor.float:
            return args[0].as_subclass(Tensor)
        return super().__torch_function__(func, types, args, kwargs or {})


def double_head(weight: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda states: functional.linear(states, weight).as_subclass(Doubles)


def full(hidden: Tensor, weight: Tensor) -> Tensor:
    logits = functional.linear(hidden[:, :-1], weight)
    return functional.cross_entropy(
        logits.reshape(-1, VOCABULARY),
        LABELS[:, 1:].reshape(-1),
        ignore_index=-100,
        reduction="sum",
    )


@pytest.mark.parametrize("chunk", [1, 2, 3, 6, 7, 8])
def test_chunked_equals_full_in_float64(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 targets: chunks of 1, 2 + a rest, exactly one chunk, and more room than needed."""
    monkeypatch.setattr(losses, "CHUNK", chunk)
    hidden, weight = problem()
    sums = token_losses(hidden, LABELS, double_head(weight))
    expected = full(hidden, weight)
    assert sums.tokens == 7
    assert float(sums.loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    ours = torch.autograd.grad(sums.loss, (hidden, weight))
    theirs = torch.autograd.grad(expected, (hidden, weight))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, atol=1e-12, rtol=0)


def test_at_most_chunk_states_meet_the_head_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 3)
    hidden, weight = problem()
    seen: list[int] = []

    def head(states: Tensor) -> Tensor:
        seen.append(len(states))
        return functional.linear(states, weight)

    sums = token_losses(hidden, LABELS, head)
    assert seen == [3, 3, 1]
    sums.loss.backward()
    assert sorted(seen[3:]) == [1, 3, 3]  # recomputed, chunk by chunk


def test_values_worked_by_hand() -> None:
    """Logits are the states: p = (1/2, 1/4, 1/4) for the first, uniform for the second."""
    hidden = torch.tensor([[[math.log(2.0), 0.0, 0.0], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]])
    sums = token_losses(hidden, torch.tensor([[-100, 0, 1]]), lambda states: states)
    assert float(sums.loss) == pytest.approx(math.log(2) + math.log(3), abs=1e-6)
    assert sums.entropy == pytest.approx(1.5 * math.log(2) + math.log(3), abs=1e-6)
    assert (sums.tokens, sums.correct) == (2, 1)  # a tie goes to token 0, the label is 1


def test_the_first_label_of_a_row_is_never_a_target() -> None:
    hidden, weight = problem()
    changed = LABELS.clone()
    changed[1, 0] = -100
    head = double_head(weight)
    one, other = token_losses(hidden, LABELS, head), token_losses(hidden, changed, head)
    assert torch.equal(one.loss, other.loss)
    assert one.tokens == other.tokens == 7


def test_no_trained_token_is_zero_with_zero_gradient_not_nan() -> None:
    hidden, weight = problem()
    sums = token_losses(hidden, torch.full((2, 6), -100), double_head(weight))
    assert (float(sums.loss.detach()), sums.tokens, sums.correct, sums.entropy) == (0.0, 0, 0, 0.0)
    sums.loss.backward()
    assert hidden.grad is not None
    assert hidden.grad.abs().sum() == 0
