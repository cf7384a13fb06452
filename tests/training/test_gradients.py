"""After the first backward: faults planted in the graph are named, and stop before an update."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.training import loop as loops
from hashtune.training.gradients import check_gradients
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.step import StepResult, train_step

MakeTrainee = Callable[..., Trainee]
MakeRow = Callable[[int, list[int]], Row]
Q0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.default.weight"


def step(trainee: Trainee, row: Row, **settings: Any) -> StepResult:
    optimizer = torch.optim.SGD(trainee.parameters.values(), lr=0.0)
    return train_step(trainee, optimizer, [row], micro=1, lr=0.1, grad_clip=1.0, **settings)


def plant(trainee: Trainee, fault: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Put `fault` after lora_B of the first query projection; the parameters as they are."""
    module = trainee.peft.get_base_model().model.layers[0].self_attn.q_proj.lora_B["default"]
    module.register_forward_hook(lambda module, inputs, output: fault(output))
    return {name: parameter.detach().clone() for name, parameter in trainee.parameters.items()}


def unchanged(trainee: Trainee, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(p, before[name]) for name, p in trainee.parameters.items())


def test_tensors_cut_from_the_graph_are_named(make_trainee: MakeTrainee, make_row: MakeRow) -> None:
    trainee = make_trainee()
    before = plant(trainee, lambda output: output.detach())
    with pytest.raises(InputError) as caught:
        step(trainee, make_row(1, [5, 4]), first=True)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("no-gradient", "method.targets")
    assert finding.message == (
        "2 of 8 trainable tensors have no gradient after the first backward: "
        f"{Q0.format('A')}, {Q0.format('B')}"
    )
    assert unchanged(trainee, before)


def test_a_lora_b_without_influence_is_named(make_trainee: MakeTrainee, make_row: MakeRow) -> None:
    trainee = make_trainee()
    before = plant(trainee, lambda output: output * 0.0)
    with pytest.raises(InputError) as caught:
        step(trainee, make_row(1, [5, 4]), first=True)
    (finding,) = caught.value.findings
    assert finding.message == (
        "1 of 8 trainable tensors have a gradient of zero after the first backward: "
        f"{Q0.format('B')}"
    )
    assert unchanged(trainee, before)


def test_one_key_has_no_gradient_for_its_query(
    make_trainee: MakeTrainee, make_row: MakeRow
) -> None:
    """Documents of two tokens: the trained one was predicted from one key. No fault."""
    assert step(make_trainee(), make_row(1, [2, 2]), first=True).applied
    assert step(make_trainee(), make_row(1, [2, 3]), first=True).applied
    grads = {"q.lora_B": nn.Parameter(torch.ones(1, 1))}
    grads["q.lora_B"].grad = torch.zeros(1, 1)
    check_gradients(grads, [make_row(1, [2, 2])])
    with pytest.raises(InputError, match=r"1 of 1 .* gradient of zero"):
        check_gradients(grads, [make_row(1, [2, 3])])


def test_the_loop_checks_until_the_first_update(
    make_loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def recorded(*args: Any, first: bool, **settings: Any) -> StepResult:
        seen.append(first)
        if len(seen) == 1:
            return StepResult(float("nan"), 0.0, 0.0, float("nan"), 1, 1, applied=False)
        return train_step(*args, first=first, **settings)

    monkeypatch.setattr(loops, "train_step", recorded)
    make_loop("run", max_skipped_steps=1).run()
    assert seen == [True, True, False, False, False, False]
