"""Continuing from a pinned adapter: parity with plain PEFT, and each fault of its tensors."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import InitAdapter, Method
from hashtune.training.adapter import WEIGHTS, write_adapter
from hashtune.training.init_adapter import continue_from, read_adapter
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan
from hashtune.training.proof import check_moved
from hashtune.writers import sha256_file

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

MakeTrainee = Callable[..., Trainee]
METHOD: dict[str, Any] = {"type": "lora", "r": 2, "alpha": 4.0, "dropout": 0.0}
B0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"


@pytest.fixture
def first(make_trainee: MakeTrainee, tmp_path: Path) -> Path:
    """A trained adapter's folder: of another seed than the fresh ones, lora_B not zero."""
    return write(make_trainee(seed=3), tmp_path / "first")


def write(trainee: Trainee, folder: Path) -> Path:
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    write_adapter(trainee.peft, folder, base_name="b", revision="1")
    return folder


def read(folder: Path, variant: Any = "lora") -> dict[str, Tensor]:
    pin = InitAdapter(path=folder.name, sha256=sha256_file(folder / WEIGHTS))
    method = Method(**METHOD, variant=variant, targets=["q_proj", "v_proj"], virtual_tokens=None)
    return read_adapter(pin, method, {}, folder.parent)


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_every_value_is_taken(variant: str, make_trainee: MakeTrainee, tmp_path: Path) -> None:
    old = make_trainee(seed=3, variant=variant)
    folder = write(old, tmp_path / "first")
    trainee = make_trainee(seed=7, variant=variant)
    continue_from(trainee.peft, read(folder, variant))
    assert trainee.parameters.keys() == old.parameters.keys()
    for name, parameter in trainee.parameters.items():
        assert torch.equal(parameter, old.parameters[name])
    now = {name: p for name, p in trainee.peft.named_parameters() if p.requires_grad}
    assert all(now[name] is parameter for name, parameter in trainee.parameters.items())


def test_without_a_pin_the_adapter_stays_fresh(make_trainee: MakeTrainee) -> None:
    trainee = make_trainee()
    start = read_adapter(
        None,
        Method(**METHOD, variant="lora", targets="all-linear", virtual_tokens=None),
        {},
        Path(),
    )
    continue_from(trainee.peft, start)
    assert all(not p.any() for name, p in trainee.parameters.items() if "lora_B" in name)


def plain(base: nn.Module, folder: Path, steps: list[list[Row]], rates: list[float]) -> Any:
    """As the documentation of PEFT continues an adapter, with nothing of this project."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(base, folder, is_trainable=True).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for rows, rate in zip(steps, rates, strict=True):
        tokens = sum(len(row.input_ids) - 1 for row in rows)
        for row in rows:
            ids = torch.tensor([row.input_ids])
            loss = model(input_ids=ids, labels=ids).loss * (len(row.input_ids) - 1)
            (loss / tokens).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return model


def test_n_steps_equal_those_of_plain_peft(
    first: Path,
    make_trainee: MakeTrainee,
    make_base: Callable[..., Any],
    make_loop: Callable[..., Loop],
    make_row: Callable[[int, list[int]], Row],
) -> None:
    rows = [make_row(number, [length]) for number, length in enumerate((6, 9, 7, 8))]
    trainee = make_trainee(seed=7)
    continue_from(trainee.peft, read(first))
    loop = make_loop("on", trainee=trainee, the_plan=Plan(rows, [[0, 1], [2, 3], [3, 0]], []))
    loop.run()
    rates = [point["train/lr"] for point in loop.progress.points]
    steps = [[rows[number] for number in numbers] for numbers in loop.plan.steps]
    theirs = dict(plain(make_base(), first, steps, rates).named_parameters())
    before, moved = load_file(first / WEIGHTS), 0
    for name, parameter in trainee.parameters.items():
        assert torch.allclose(parameter, theirs[name], rtol=0.0, atol=2e-6), name
        moved += not torch.equal(parameter, before[name.replace(".default", "")])
    assert moved == len(before) == 8


def with_tensor(folder: Path, tensor: Tensor | None, name: str = B0) -> dict[str, Tensor]:
    tensors = load_file(folder / WEIGHTS) | ({} if tensor is None else {name: tensor})
    if tensor is None:
        del tensors[name]
    save_file(tensors, folder / WEIGHTS)
    return read(folder)


@pytest.mark.parametrize(
    ("tensor", "name", "message"),
    [
        (None, B0, f"lacks 1 of 8 tensors that method.targets needs: {B0}"),
        (torch.ones(1), "x.lora_B.weight", "holds 1 of 9 tensors that it has no place for: x.lora"),
        (torch.ones(64, 3), B0, f"{B0} has shape [64, 3], the model needs [64, 2]"),
        (torch.full((64, 2), math.nan), B0, f"{B0} holds NaN or infinity"),
        (torch.full((64, 2), -math.inf), B0, f"{B0} holds NaN or infinity"),
        (torch.ones(64, 2).double(), B0, f"{B0} has elements of torch.float64"),
    ],
)
def test_each_fault_of_a_tensor_is_named_and_nothing_is_taken(
    tensor: Tensor | None, name: str, message: str, first: Path, make_trainee: MakeTrainee
) -> None:
    trainee = make_trainee()
    fresh = {name: p.detach().clone() for name, p in trainee.parameters.items()}
    with pytest.raises(InputError) as caught:
        continue_from(trainee.peft, with_tensor(first, tensor, name))
    assert [finding.rule for finding in caught.value.findings] == ["init-adapter"]
    assert message in str(caught.value)
    assert all(torch.equal(p, fresh[name]) for name, p in trainee.parameters.items())


def test_other_targets_are_named(first: Path, make_trainee: MakeTrainee) -> None:
    with pytest.raises(InputError) as caught:
        continue_from(make_trainee(targets=["q_proj", "k_proj"]).peft, read(first))
    assert [finding.field for finding in caught.value.findings] == ["method.targets"] * 2
    assert "lacks 4 of 8" in str(caught.value)
    assert "holds 4 of 8" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"no safetensors"])
def test_a_file_that_is_no_safetensors(data: bytes, first: Path) -> None:
    (first / WEIGHTS).write_bytes(data)
    with pytest.raises(InputError, match="is no safetensors file"):
        read(first)


def test_a_layer_that_stays_where_it_began_is_no_trained_layer() -> None:
    start = {"x.lora_B": torch.ones(2, 2), "y.lora_B": torch.ones(2, 2)}
    check_moved({name: tensor + 1 for name, tensor in start.items()}, start)
    with pytest.raises(InputError, match=r"1/2 lora_B tensors moved; still as at the start: x\."):
        check_moved(start | {"y.lora_B": torch.zeros(2, 2)}, start)
