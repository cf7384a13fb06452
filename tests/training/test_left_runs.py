"""Runs that were stopped, as doctor lists them."""

import fcntl
import json

import torch

from hashtune import folders
from hashtune.training import checkpoint, intact
from hashtune.training.left_runs import left_runs


def save(run, step):
    tensors = {"adapter.w": torch.zeros(2)}
    checkpoint.save(run, checkpoint.Progress(step=step), tensors, identity="x", spec={}, code={})


def test_no_store_has_no_runs(tmp_path):
    assert list(left_runs(tmp_path / "none")) == []


def test_a_finished_run_is_not_listed(tmp_path):
    (tmp_path / "runs/a/result").mkdir(parents=True)
    assert list(left_runs(tmp_path)) == []


def test_the_newest_complete_checkpoint_counts(tmp_path):
    run = tmp_path / "runs/a"
    for step in (20, 40):
        save(run, step)
    (run / "step-00000040/state.json").write_text("{")
    (left,) = left_runs(tmp_path)
    assert (left.step, left.holder) == (20, None)
    assert left.reasons[0].startswith("step 40: state.json has 1 bytes")
    assert left.bytes == sum(f.stat().st_size for f in run.rglob("*") if f.is_file())


def test_a_run_with_broken_checkpoints_only(tmp_path):
    save(tmp_path / "runs/a", 20)
    (tmp_path / "runs/a/step-00000020/manifest.json").unlink()
    (left,) = left_runs(tmp_path)
    assert left.step is None
    assert left.reasons == ["step 20: manifest.json is missing"]


def test_a_trainer_at_work_is_named(tmp_path):
    run = tmp_path / "runs/a"
    save(run, 20)
    with (run / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        json.dump({"pid": 12, "host": "here"}, handle)
        handle.flush()
        (left,) = left_runs(tmp_path)
    assert left.holder == "pid 12 on here"


def test_a_checkpoint_that_is_pruned_while_it_is_read_is_no_fault(tmp_path, monkeypatch):
    """doctor, while a queue trains: planted between the look at the manifest and the reading."""
    run = tmp_path / "runs/a"
    save(run, 20)
    save(run, 40)
    real = intact._read_manifest

    def pruned(path):
        if path.parent.name == "step-00000040":
            folders.remove_folder(path.parent)
        return real(path)

    monkeypatch.setattr(intact, "_read_manifest", pruned)
    (left,) = left_runs(tmp_path)
    assert left.step == 20
    assert left.reasons == ["step 40: was removed meanwhile"]
