"""Checkpoints: exact round trip, C49 to C51, C55, refusals, and a full disk."""

import json
import random
import re
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from hashtune import writers
from hashtune.errors import InputError
from hashtune.training import checkpoint as checkpoints
from hashtune.training.checkpoint import Progress
from hashtune.training.intact import complete, write_manifest
from hashtune.training.randomness import restore_rng

IDENTITY = "1" * 64
TENSORS = {
    "adapter.layer.lora_A": torch.tensor([[1.0, -2.5], [0.1, 3.0]]),
    "optimizer.exp_avg.layer.lora_A": torch.tensor([[1e-30, 2.0], [0.0, -0.0]]),
    "optimizer.step.layer.lora_A": torch.tensor(4.0),
}
SPEC: dict[str, Any] = {
    "inputs": {"build/code/train.json": "c" * 64, "build/pack/steps.parquet": "d" * 64},
    "optim": {"lr": 1e-4},
    "micro": 2,
}
CODE: dict[str, Any] = {
    "packages": {"torch": "2.13.0", "numpy": "2.4.0"},
    "python": "3.11",
    "modules": {"hashtune.training.loop": "e" * 64},
}
SETTINGS = {"parameters": ["layer.lora_A"], "steps": 12345678, "spec": SPEC, "code": CODE}


def save(run: Path, step: int, *, identity: str = IDENTITY, best: int | None = None) -> Path:
    progress = Progress(
        step=step,
        updates=step - 1,
        skipped=[2],
        points=[{"step": 1, "train/loss": 0.1 + 0.2}],
        best_step=best,
        best_loss=1 / 3,
    )
    return checkpoints.save(run, progress, TENSORS, identity=identity, spec=SPEC, code=CODE)


def load(folder: Path, **changes: Any) -> checkpoints.Loaded:
    return checkpoints.load(folder, **{"identity": IDENTITY, **SETTINGS, **changes})


def test_round_trip_is_exact(tmp_path: Path) -> None:
    folder = save(tmp_path, 40, best=20)
    assert folder == tmp_path / "step-00000040"
    loaded = load(folder)
    assert loaded.progress == Progress(
        40, 39, [2], [{"step": 1, "train/loss": 0.30000000000000004}], 20, 1 / 3
    )
    for name, tensor in TENSORS.items():
        assert torch.equal(loaded.tensors[name], tensor)
        assert loaded.tensors[name].dtype == tensor.dtype
    assert writers.read_json(folder / "state.json")["spec"] == SPEC


def draws() -> tuple[list[float], list[float], list[float]]:
    return (
        [random.random(), random.gauss(0, 1)],
        [float(np.random.standard_normal()), float(np.random.rand())],
        torch.rand(3).tolist(),
    )


def test_all_random_states_come_back(tmp_path: Path) -> None:
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    draws()  # leaves a cached Gaussian in Python's and NumPy's generators
    random.gauss(0, 1)
    np.random.standard_normal()
    folder = save(tmp_path, 1)
    expected = draws()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    loaded = load(folder)
    restore_rng(loaded.rng, loaded.tensors)
    assert draws() == expected


def test_c49_nothing_is_pickled(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    names = {path.name for path in folder.iterdir()}
    assert names == {"state.json", "tensors.safetensors", "manifest.json"}
    for name in ("state.json", "manifest.json"):
        json.loads((folder / name).read_text(encoding="utf-8"))
    size = int.from_bytes((folder / "tensors.safetensors").read_bytes()[:8], "little")
    header = json.loads((folder / "tensors.safetensors").read_bytes()[8 : 8 + size])
    assert set(header) == {*TENSORS, "rng.torch"}
    source = Path(checkpoints.__file__).read_text(encoding="utf-8")
    assert "torch.load" not in source
    assert "import pickle" not in source


def remove_state(folder: Path) -> str:
    (folder / "state.json").unlink()
    return "state.json is missing"


def remove_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return "manifest.json is missing"


def truncate(folder: Path) -> str:
    file = folder / "tensors.safetensors"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:100])
    return f"tensors.safetensors has 100 bytes, its manifest says {size}"


def change_a_byte(folder: Path) -> str:
    file = folder / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return "tensors.safetensors differs from its manifest"


def empty_everything(folder: Path) -> str:
    for file in folder.iterdir():
        file.write_bytes(b"")
    return "manifest.json is not a manifest of ours (cut off?)"


def empty_all_but_the_manifest(folder: Path) -> str:
    size = (folder / "state.json").stat().st_size
    for name in ("state.json", "tensors.safetensors"):
        (folder / name).write_bytes(b"")
    return f"state.json has 0 bytes, its manifest says {size}"


def manifest_of_nothing(folder: Path) -> str:
    (folder / "manifest.json").write_text("{}\n")
    return "manifest.json is not a manifest of ours (cut off?)"


def empty_folder(folder: Path) -> str:
    for file in folder.iterdir():
        file.unlink()
    return "manifest.json is missing"


FAULTS = [
    remove_state,
    remove_manifest,
    truncate,
    change_a_byte,
    empty_everything,
    empty_all_but_the_manifest,
    manifest_of_nothing,
    empty_folder,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_c50_a_broken_checkpoint_is_passed_over_with_its_reason(fault: Any, tmp_path: Path) -> None:
    good, broken = save(tmp_path, 20), save(tmp_path, 30)
    assert checkpoints.newest(tmp_path) == (broken, [])
    reason = fault(broken)
    assert complete(broken) == reason
    assert checkpoints.newest(tmp_path) == (good, [f"step-00000030 skipped: {reason}"])
    with pytest.raises(InputError, match="broken-checkpoint"):
        load(broken)


def test_c50_none_complete_is_an_error_not_a_silent_restart(tmp_path: Path) -> None:
    remove_state(save(tmp_path, 20))
    truncate(save(tmp_path, 30))
    with pytest.raises(InputError, match="checkpoints exist but none is complete") as caught:
        checkpoints.newest(tmp_path)
    (finding,) = caught.value.findings
    assert finding.message.index("step-00000030") < finding.message.index("step-00000020")
    assert finding.fix is not None
    assert f"rm -r {tmp_path}" in finding.fix


def test_a_fresh_run_has_none(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path / "absent") == (None, [])
    (tmp_path / ".step-00000002.abc.tmp").mkdir()  # killed in the middle of a write
    (tmp_path / "lock").touch()
    assert checkpoints.newest(tmp_path) == (None, [])


def test_c51_order_is_numeric_and_the_best_is_kept(tmp_path: Path) -> None:
    for step in (200, 9900, 10000, 123456789 // 10):
        save(tmp_path, step)
    assert checkpoints.steps(tmp_path) == [200, 9900, 10000, 12345678]
    checkpoints.prune(tmp_path, keep_last=2, best_step=200, written=12345678)
    assert checkpoints.steps(tmp_path) == [200, 10000, 12345678]
    checkpoints.prune(tmp_path, keep_last=1, best_step=200, written=12345678)
    assert checkpoints.steps(tmp_path) == [200, 12345678]
    assert load(checkpoints.directory(tmp_path, 200)).progress.step == 200


def test_c51_keep_one_keeps_10000_not_9900(tmp_path: Path) -> None:
    save(tmp_path, 9900)
    save(tmp_path, 10000)
    checkpoints.prune(tmp_path, keep_last=1, best_step=None, written=10000)
    assert checkpoints.steps(tmp_path) == [10000]


def test_a_broken_later_checkpoint_does_not_push_out_the_good_one(tmp_path: Path) -> None:
    truncate(save(tmp_path, 30))
    save(tmp_path, 25)  # resumed from an older one with another cadence
    checkpoints.prune(tmp_path, keep_last=1, best_step=None, written=25)
    assert checkpoints.steps(tmp_path) == [25]


def test_a_mixed_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, 1, identity="2" * 64)
    with pytest.raises(InputError, match=f"identity {'2' * 16}, this is {'1' * 16}") as caught:
        load(folder)
    assert caught.value.findings[0].rule == "foreign-checkpoint"


@pytest.mark.parametrize("parameters", [[], ["layer.lora_A", "layer.lora_B"], ["other.lora_A"]])
def test_other_parameter_names_are_refused(parameters: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds other parameters: .* differs"):
        load(save(tmp_path, 1), parameters=parameters)


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = save(tmp_path, 1)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 100))
    with pytest.raises(InputError, match="disk-full"):
        save(tmp_path, 2)
    assert checkpoints.newest(tmp_path) == (old, [])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


FAILURES = [
    OSError(28, "No space left on device"),
    OSError(122, "Disk quota exceeded"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_disk_that_fills_up_in_a_write_is_a_finding_and_leaves_nothing_half(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = save(tmp_path, 1)

    def no_space(tensors: dict[str, Tensor], file: Path) -> None:
        file.write_bytes(b"half")
        raise failure

    monkeypatch.setattr(checkpoints, "save_file", no_space)
    with pytest.raises(InputError, match=r"the disk is full: .*\[disk-full\]"):
        save(tmp_path, 2)
    assert checkpoints.newest(tmp_path) == (old, [])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), SafetensorError("other")])
def test_another_failure_of_the_disk_is_no_full_disk(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tensors: dict[str, Tensor], file: Path) -> None:
        raise failure

    monkeypatch.setattr(checkpoints, "save_file", broken)
    with pytest.raises(type(failure), match=r"error|other"):
        save(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_kill_are_swept_by_the_next_save(tmp_path: Path) -> None:
    for name in (".step-00000002.x.tmp", ".step-00000001.y.old.tmp", ".stable.z.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("half")
    save(tmp_path, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_pruning_gives_a_folder_another_name_before_it_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill in the middle leaves half a checkpoint under the name of one."""
    save(tmp_path, 1)
    newer = save(tmp_path, 2)
    removed: list[str] = []
    monkeypatch.setattr(shutil, "rmtree", lambda folder, **_: removed.append(Path(folder).name))
    checkpoints.prune(tmp_path, keep_last=1, best_step=None, written=2)
    assert len(removed) == 1
    assert re.fullmatch(r"\.step-00000001\..*\.tmp", removed[0])
    assert checkpoints.steps(tmp_path) == [2]
    assert checkpoints.newest(tmp_path) == (newer, [])


DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    (
        {"code": {**CODE, "packages": {"torch": "2.14.0", "numpy": "2.4.0"}}},
        "library torch: 2.13.0 there, 2.14.0 here",
    ),
    (
        {"code": {**CODE, "packages": {"torch": "2.13.0"}}},
        "library numpy: 2.4.0 there, nothing here",
    ),
    ({"code": {**CODE, "python": "3.12"}}, "library python: 3.11 there, 3.12 here"),
    (
        {"code": {**CODE, "modules": {"hashtune.training.loop": "f" * 64}}},
        f"module hashtune.training.loop: {'e' * 16} there, {'f' * 16} here",
    ),
    (
        {"spec": {**SPEC, "inputs": {**SPEC["inputs"], "build/pack/steps.parquet": "f" * 64}}},
        f"build/pack/steps.parquet: {'d' * 16} there, {'f' * 16} here",
    ),
    ({"spec": {**SPEC, "optim": {"lr": 0.5}}}, "optim.lr: 0.0001 there, 0.5 here"),
    ({"spec": {**SPEC, "micro": 1}}, "batch.micro: 2 there, 1 here"),
    (
        {"spec": {**SPEC, "optim": {"lr": 0.5}}, "code": {**CODE, "python": "3.12"}},
        "library python: 3.11 there, 3.12 here",
    ),
    ({}, "its parts are the same"),
]


@pytest.mark.parametrize(("changes", "first"), DIFFERENCES)
def test_a_foreign_checkpoint_is_refused_with_the_first_part_that_differs(
    changes: dict[str, Any], first: str, tmp_path: Path
) -> None:
    folder = save(tmp_path, 1)
    with pytest.raises(InputError, match="foreign-checkpoint") as caught:
        load(folder, identity="2" * 64, **changes)
    (finding,) = caught.value.findings
    assert finding.message == (f"belongs to train identity {'1' * 16}, this is {'2' * 16}; {first}")
    assert finding.fix == f"rm -r {tmp_path}"


def test_c49_another_format_names_the_file_and_no_switch(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    state = writers.read_json(folder / "state.json")
    del state["format"]
    writers.write_json(folder / "state.json", state)
    write_manifest(folder)
    with pytest.raises(InputError, match="is of format None, this code reads 1") as caught:
        load(folder)
    (finding,) = caught.value.findings
    assert finding.file == f"{folder}/state.json"
    assert finding.fix == f"rm -r {tmp_path}"


def test_c55_a_position_behind_the_plan_is_refused_with_both_numbers(tmp_path: Path) -> None:
    folder = save(tmp_path, 9)
    assert load(folder, steps=9).progress.step == 9
    with pytest.raises(InputError, match="was written after step 9, the plan has 8"):
        load(folder, steps=8)
