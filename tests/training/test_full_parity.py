"""Loss and gradients with every parameter trained, against a plain loop of transformers.

Ours is the trainee of method.type full over two packed rows, the plain loop runs each document
alone, both in fp32. Stated tolerance: loss 1e-6 relative, each gradient 1e-5 of
its largest element.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.records import Row
from hashtune.training.batches import Batch, collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee

MakeFull = Callable[..., Trainee]
Result = tuple[float, dict[str, Tensor]]


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def ours(trainee: Trainee, batch: Batch) -> Result:
    """The step's own forward and loss."""
    sums = token_losses(trainee.hidden(batch), batch.labels, trainee.head)
    (sums.loss / sums.tokens).backward()
    named = {name: parameter.grad for name, parameter in trainee.parameters.items()}
    return float(sums.loss.detach()) / sums.tokens, named


def theirs(base: Any, rows: list[Row]) -> Result:
    """Token losses of each document alone, summed, over the trained tokens of all."""
    losses, tokens = [], 0
    for row in rows:
        documents = [torch.tensor(part).split(row.lengths) for part in (row.input_ids, row.labels)]
        for ids, labels in zip(*documents, strict=True):
            logits = base(input_ids=ids[None]).logits[0, :-1]
            losses.append(torch.nn.functional.cross_entropy(logits, labels[1:], reduction="sum"))
            tokens += int((labels[1:] != -100).sum())
    loss = torch.stack(losses).sum() / tokens
    loss.backward()
    return float(loss.detach()), gradients(base)


@pytest.fixture
def rows(make_row: Callable[[int, list[int]], Row]) -> list[Row]:
    """Documents of 5, 4, 1 and 6, 7 tokens; rows of 10 and 13, so that one is padded."""
    return [make_row(1, [5, 4, 1]), make_row(2, [6, 7])]


def worst(grads: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest difference, relative to the largest element of its tensor."""
    assert grads.keys() == wanted.keys()
    assert all(bool(grad.any()) for grad in wanted.values())
    return max(
        float((grads[name] - wanted[name]).abs().max() / wanted[name].abs().max())
        for name in wanted
    )


def test_every_parameter_has_the_gradient_of_the_plain_loop(
    make_base: Callable[..., Any], make_full: MakeFull, rows: list[Row]
) -> None:
    loss, grads = ours(make_full(), collate(rows))
    their_loss, their_grads = theirs(make_base(), rows)
    assert loss == pytest.approx(their_loss, rel=1e-6)
    assert len(grads) == 20  # 2 blocks of 9, the last norm, the embedding that is also the head
    assert worst(grads, their_grads) <= 1e-5


def test_documents_that_see_each_other_are_no_parity(
    make_base: Callable[..., Any], make_full: MakeFull, rows: list[Row]
) -> None:
    """Planted fault: each row taken as one document."""
    leaking = collate([replace(row, lengths=[sum(row.lengths)]) for row in rows])
    loss, grads = ours(make_full(), leaking)
    their_loss, their_grads = theirs(make_base(), rows)
    assert loss != pytest.approx(their_loss, rel=1e-6)
    assert worst(grads, their_grads) > 1e-3
