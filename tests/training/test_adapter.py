"""The written adapter: equal bytes, no trace of the machine, checks that catch a broken file."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune.training.adapter import CONFIG, WEIGHTS, check_adapter, compare, write_adapter
from hashtune.training.model import Trainee

MakeTrainee = Callable[..., Trainee]


def write(trainee: Trainee, folder: Path) -> Path:
    write_adapter(trainee.peft, folder, base_name="smollm2", revision="0.1.2")
    return folder


def test_equal_weights_are_equal_bytes(make_trainee: MakeTrainee, tmp_path: Path) -> None:
    one = write(make_trainee(targets=["v_proj", "q_proj"]), tmp_path / "here" / "adapter")
    two = write(make_trainee(targets=["q_proj", "v_proj"]), tmp_path / "there" / "other")
    assert sorted(path.name for path in one.iterdir()) == [CONFIG, WEIGHTS]
    for name in (CONFIG, WEIGHTS):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    three = write(make_trainee(seed=8), tmp_path / "three")
    assert (one / CONFIG).read_bytes() == (three / CONFIG).read_bytes()
    assert (one / WEIGHTS).read_bytes() != (three / WEIGHTS).read_bytes()


def test_config_names_the_base_and_no_path(
    make_trainee: MakeTrainee, tmp_path: Path, base_folder: Path
) -> None:
    text = (write(make_trainee(targets="all-linear"), tmp_path / "a") / CONFIG).read_text()
    config = json.loads(text)
    assert config["base_model_name_or_path"] == "smollm2"
    assert (config["revision"], config["inference_mode"]) == ("0.1.2", True)
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (2, 4.0, "LORA")
    attention, mlp = ("k_proj", "o_proj", "q_proj", "v_proj"), ("down_proj", "gate_proj", "up_proj")
    assert config["target_modules"] == [  # sorted, not in hash order
        f"model.layers.{layer}.{part}"
        for layer in (0, 1)
        for part in (*(f"mlp.{name}" for name in mlp), *(f"self_attn.{name}" for name in attention))
    ]
    assert str(tmp_path) not in text
    assert str(base_folder) not in text
    assert '"/' not in text


@pytest.mark.parametrize(
    ("variant", "use_rslora", "use_dora"),
    [("lora", False, False), ("rslora", True, False), ("dora", False, True)],
)
def test_config_says_which_variant(
    variant: str, use_rslora: bool, use_dora: bool, make_trainee: MakeTrainee, tmp_path: Path
) -> None:
    folder = write(make_trainee(variant=variant), tmp_path / "a")
    config = json.loads((folder / CONFIG).read_text())
    assert (config["use_rslora"], config["use_dora"]) == (use_rslora, use_dora)
    names = load_file(folder / WEIGHTS)
    magnitude = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    assert (magnitude in names) == use_dora
    assert len(names) == (12 if use_dora else 8)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], [r"re:.*\.1\.mlp\..*"]])
def test_peft_loads_it_and_every_key_takes_effect(
    targets: list[str],
    make_trainee: MakeTrainee,
    make_base: Callable[..., object],
    tmp_path: Path,
) -> None:
    """C67: no key is skipped, the loaded model says what the trained one says."""
    from peft import PeftModel

    trainee = make_trainee(targets=targets)
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    folder = write(trainee, tmp_path / "adapter")
    assert "re:" not in (folder / CONFIG).read_text()  # PEFT gets names, never our pattern
    loaded = PeftModel.from_pretrained(make_base(), folder).eval()
    trainee.peft.eval()
    ids = torch.tensor([[5, 9, 30, 4]])
    with torch.no_grad():
        ours, theirs = trainee.peft(input_ids=ids).logits, loaded(input_ids=ids).logits
        with loaded.disable_adapter():
            base = loaded(input_ids=ids).logits
    assert torch.equal(ours, theirs)
    assert float((theirs - base).abs().max()) > 1e-3


EXPECTED = {"m.lora_A.weight": torch.ones(2, 3), "m.lora_B.weight": torch.ones(3, 2)}


def broken(folder: Path, **changes: Tensor | None) -> Path:
    tensors = {name: changes.get(name[2:8], tensor) for name, tensor in EXPECTED.items()}
    save_file({n: t for n, t in tensors.items() if t is not None}, folder / WEIGHTS)
    return folder


def test_check_passes_on_a_good_file(tmp_path: Path) -> None:
    check_adapter(broken(tmp_path), EXPECTED)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (None, "other names"),
        (torch.ones(0), "another shape"),
        (torch.ones(3, 2).T.contiguous(), "another shape"),
        (torch.full((3, 2), math.nan), "m.lora_B.weight is not finite"),
        (torch.full((3, 2), math.inf), "m.lora_B.weight is not finite"),
    ],
)
def test_check_catches_a_broken_tensor(fault: Tensor | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        check_adapter(broken(tmp_path, lora_B=fault), EXPECTED)


def test_check_catches_an_empty_tensor_even_when_expected(tmp_path: Path) -> None:
    """C66: the 40-byte file of a sharded save."""
    empty = {"m.lora_A.weight": torch.ones(0), "m.lora_B.weight": torch.ones(0)}
    save_file(empty, tmp_path / WEIGHTS)
    with pytest.raises(AssertionError, match="is empty"):
        check_adapter(tmp_path, empty)


def test_check_catches_a_misnamed_tensor(tmp_path: Path) -> None:
    save_file({"x." + name: tensor for name, tensor in EXPECTED.items()}, tmp_path / WEIGHTS)
    with pytest.raises(AssertionError, match="other names"):
        check_adapter(tmp_path, EXPECTED)


def test_other_names_are_given() -> None:
    one, two = {"a": torch.ones(1), "b": torch.ones(1)}, {"b": torch.ones(1), "c": torch.ones(1)}
    with pytest.raises(AssertionError, match="other names than the model: lacks a"):
        compare(one, two)
    with pytest.raises(AssertionError, match="other names than the model: adds c"):
        compare({"b": torch.ones(1)}, two)
    with pytest.raises(AssertionError, match="b loads with other values"):
        compare({"b": torch.zeros(1)}, {"b": torch.ones(1)})


def test_a_nan_never_becomes_an_adapter(make_trainee: MakeTrainee, tmp_path: Path) -> None:
    trainee = make_trainee()
    with torch.no_grad():
        next(iter(trainee.parameters.values()))[0, 0] = math.nan
    with pytest.raises(AssertionError, match="is not finite"):
        write(trainee, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
