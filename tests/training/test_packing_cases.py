"""C28 and C32 of the project's list of cases: documents of a row do not see each other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.training.attention import check_probe, run_probe
from hashtune.training.batches import Batch, collate
from hashtune.training.documents import attend_as
from hashtune.training.model import Trainee

MakeTrainee = Callable[..., Trainee]
MakeRow = Callable[[int, list[int]], Row]


def moved(trainee: Trainee) -> Trainee:
    """lora_B begins at zero, which would leave the adapter out of everything."""
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.02)
    return trainee


def alone(row: Row, start: int, length: int) -> Row:
    ids, labels = (part[start : start + length] for part in (row.input_ids, row.labels))
    return Row(row.row, ["x"], [length], ids, labels)


def logits(trainee: Trainee, batch: Batch) -> Tensor:
    with torch.no_grad():
        return trainee.head(trainee.hidden(batch))


def loss_sum(trainee: Trainee, batch: Batch) -> float:
    return float(trainee.losses(batch).loss.detach())


@pytest.mark.parametrize(
    ("attention", "kernels"), [("mask", "plain"), ("documents", "plain"), ("documents", "fused")]
)
def test_c28_losses_packed_are_those_alone_and_nothing_crosses(
    attention: Any, kernels: Any, make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    """A of 3 tokens and B of 5: sums of losses within 1e-4, B's logits within 1e-6."""
    trainee = moved(make_trainee(targets="all-linear"))
    attend_as(trainee.peft.get_base_model(), attention, [], kernels)
    row = make_row(1, [3, 5])
    a, b = alone(row, 0, 3), alone(row, 3, 5)
    apart = loss_sum(trainee, collate([a])) + loss_sum(trainee, collate([b]))
    assert loss_sum(trainee, collate([row])) == pytest.approx(apart, abs=1e-4)
    before = logits(trainee, collate([row]))
    other = collate([replace(row, input_ids=[*row.input_ids[:2], 400, *row.input_ids[3:]])])
    after = logits(trainee, other)
    assert float((after - before)[:, 3:].abs().max()) <= 1e-6
    assert float((after - before)[:, :3].abs().max()) > 1e-2


def test_c28_planted_fault_one_document_of_two_is_seen(
    make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    trainee, row = moved(make_trainee(targets="all-linear")), make_row(1, [3, 5])
    whole = replace(row, lengths=[8], example_ids=["x"])
    apart = sum(loss_sum(trainee, collate([alone(row, *part)])) for part in ((0, 3), (3, 5)))
    assert abs(loss_sum(trainee, collate([whole])) - apart) > 1e-3


def test_c32_a_leak_is_an_error_with_the_way_out(
    make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    class Ignored(Trainee):
        """The all-ones mask: the backend attends over the whole row."""

        def hidden(self, batch: Batch) -> Tensor:
            row = torch.arange(batch.tokens)[None]
            return super().hidden(replace(batch, lengths=((batch.tokens,),), position_ids=row))

    trainee = make_trainee()
    leaking = Ignored(trainee.peft, trainee.parameters, trainee.precision)
    with pytest.raises(InputError) as caught:
        check_probe(run_probe(leaking, make_row(1, [3, 5])))
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("attention-leak", "data.packing")
    assert finding.message.startswith("attention backend 'sdpa' leaks, ")
    assert finding.fix is not None and finding.fix.startswith("set data.packing=false")
