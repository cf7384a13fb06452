"""The written adapter is loaded again: each planted fault turns the proof red, by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.training.adapter import CONFIG, WEIGHTS, write_adapter
from hashtune.training.model import Trainee
from hashtune.training.proof import check_moved, prove_adapter

B0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
MakeTrainee = Callable[..., Trainee]


@pytest.fixture(params=["lora"])
def trained(make_trainee: MakeTrainee, request: pytest.FixtureRequest) -> Trainee:
    trainee = make_trainee(dropout=0.2, variant=request.param)
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    return trainee


@pytest.fixture
def row(make_row: Callable[[int, list[int]], Row]) -> Row:
    return make_row(3, [9, 8])


def write(trainee: Trainee, folder: Path, prove: Callable[[Path], None] | None = None) -> Path:
    write_adapter(trainee.peft, folder, base_name="b", revision="1", prove=prove)
    return folder


def change(folder: Path, edit: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(edit(load_file(folder / WEIGHTS)), folder / WEIGHTS)


@pytest.mark.parametrize("trained", ["lora", "rslora", "dora"], indirect=True)
def test_a_sound_adapter_passes_and_leaves_the_model_as_it_was(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    before = {name: p.detach().clone() for name, p in trained.parameters.items()}
    prove_adapter(trained, folder, row, updates=3, start={})
    after = {n: p for n, p in trained.peft.named_parameters() if p.requires_grad}
    assert after.keys() == before.keys()
    assert all(after[name] is trained.parameters[name] for name in after)
    assert all(torch.equal(after[name], before[name]) for name in after)
    assert (trained.peft.training, list(trained.peft.peft_config)) == (True, ["default"])
    write(trained, tmp_path / "b")
    assert (tmp_path / "b" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()


def test_c58_layers_still_zero_are_counted_and_named(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    with torch.no_grad():
        trained.parameters[B0.replace(".weight", ".default.weight")].zero_()
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert finding.rule == "untrained-layers"
    assert finding.message == f"3/4 lora_B tensors moved; still zero: {B0}"
    prove_adapter(trained, folder, row, updates=0, start={})  # nothing was to move


def test_c58_none_moved() -> None:
    with pytest.raises(InputError, match=r"0/2 lora_B tensors moved; still zero: x\.lora_B, y"):
        check_moved({f"{name}.lora_B": torch.zeros(2, 2) for name in ("y", "x")}, {})


def test_c67_an_adapter_without_effect(trained: Trainee, row: Row, tmp_path: Path) -> None:
    with torch.no_grad():
        for name, parameter in trained.parameters.items():
            if "lora_B" in name:
                parameter.fill_(1e-30)  # moved, and lost in the sum
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("no-effect", "optim.lr")
    assert finding.message == "after 3 updates the adapter changes no logit of row 3"


def test_finite_weights_whose_products_are_not(trained: Trainee, row: Row, tmp_path: Path) -> None:
    """1e30 is a number of fp32 and 1e60 none: the rate's fault, and no fault of the file."""
    with torch.no_grad():
        for parameter in trained.parameters.values():
            parameter.fill_(1e30)
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field, finding.fix) == (
        *("non-finite", "optim.lr", "lower optim.lr"),
    )
    assert finding.message == "after 3 updates the logits of row 3 hold NaN or infinity"


def test_a_base_that_gives_nan_is_blamed_itself(trained: Trainee, row: Row, tmp_path: Path) -> None:
    with torch.no_grad():
        trained.peft.get_base_model().model.norm.weight.fill_(float("inf"))
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError, match="as the base's do") as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    assert caught.value.findings[0].field == "base_model"


def test_c67_a_misnamed_tensor(trained: Trainee, row: Row, tmp_path: Path) -> None:
    folder = write(trained, tmp_path / "a")
    other = B0.replace("q_proj", "z_proj")
    change(folder, lambda found: {n.replace(B0, other): t for n, t in found.items()})
    with pytest.raises(AssertionError, match=f"other names than the model: lacks {B0}"):
        prove_adapter(trained, folder, row, updates=3, start={})


def test_another_value_in_the_file(trained: Trainee, row: Row, tmp_path: Path) -> None:
    folder = write(trained, tmp_path / "a")
    change(folder, lambda found: {**found, B0: found[B0] + 0.5})
    with pytest.raises(AssertionError, match="logits are off by up to"):
        prove_adapter(trained, folder, row, updates=3, start={})


@pytest.mark.parametrize("changed", [{"lora_alpha": 5.0}, {"use_rslora": True}])
def test_another_scale_in_the_config(
    changed: dict[str, Any], trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changed))
    with pytest.raises(AssertionError, match="logits are off by up to"):
        prove_adapter(trained, folder, row, updates=3, start={})


def test_what_fails_the_proof_never_has_the_real_name(trained: Trainee, tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
        raise AssertionError("refused")

    with pytest.raises(AssertionError, match="refused"):
        write(trained, tmp_path / "a", refuse)
    assert list(tmp_path.iterdir()) == []
