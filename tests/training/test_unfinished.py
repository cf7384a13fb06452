"""An interrupted run that nearly fits is named, with what keeps it from being continued."""

import fcntl
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune import folders, writers
from hashtune.training import checkpoint as checkpoints
from hashtune.training import unfinished as module
from hashtune.training.checkpoint import Progress
from hashtune.training.unfinished import unfinished

CODE = {"packages": {"torch": "2.13.0"}, "python": "3.11", "modules": {"a": "1" * 64}}
SPEC = {"inputs": {"build/code/train.json": "c" * 64}, "optim": {"lr": 0.1, "eps": 1e-8}, "seed": 1}


def interrupted(runs: Path, *, steps: tuple[int, ...] = (20, 40)) -> Path:
    run = runs / "b" / ""
    for step in steps:
        tensors = {"adapter.x": torch.zeros(1)}
        state = {"identity": "b" * 64, "spec": SPEC, "code": CODE}
        checkpoints.save(run, Progress(step=step), tensors, **state)  # type: ignore[arg-type]
    return run


NEAR: list[tuple[dict[str, Any], str]] = [
    (
        {"code": {**CODE, "packages": {"torch": "2.14.0"}}},
        "library torch: 2.13.0 there, 2.14.0 here",
    ),
    (
        {"code": {**CODE, "modules": {"a": "2" * 64}}},
        f"module a: {'1' * 16} there, {'2' * 16} here",
    ),
    (
        {"spec": {**SPEC, "optim": {"lr": 0.2, "eps": 1e-8}, "seed": 2}},
        "optim.lr: 0.1 there, 0.2 here; seed: 1 there, 2 here",
    ),
]


@pytest.mark.parametrize(("changes", "told"), NEAR)
def test_what_differs_is_named(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    interrupted(tmp_path)
    assert unfinished(tmp_path / "a", {"spec": SPEC, "code": CODE, **changes}) == [
        f"another run stopped after step 40 and is not continued; {told}"
    ]


def test_another_experiment_is_none_of_ours(tmp_path: Path) -> None:
    interrupted(tmp_path)
    spec = {**SPEC, "optim": {"lr": 0.2, "eps": 1e-7}, "seed": 2}
    other = {"spec": spec, "code": {**CODE, "python": "3.12"}}
    assert unfinished(tmp_path / "a", other) == []


def test_a_run_that_continues_says_nothing_of_others(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    (tmp_path / "a" / "step-00000002").mkdir(parents=True)
    now = {"spec": {**SPEC, "seed": 2}, "code": CODE}
    assert unfinished(tmp_path / "a", now) == []
    assert unfinished(run, now) == []


def test_broken_and_older_states_are_passed_over(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    (run / "step-00000040" / "manifest.json").unlink()
    now = {"spec": {**SPEC, "seed": 2}, "code": CODE}
    (line,) = unfinished(tmp_path / "a", now)
    assert line.startswith("another run stopped after step 20 and is not continued; seed: 1")
    (tmp_path / "finished" / "result").mkdir(parents=True)
    old = interrupted(tmp_path / "old", steps=(3,)) / "step-00000003"
    writers.write_json(old / "state.json", {"identity": "c"})
    checkpoints.write_manifest(old)
    assert unfinished(tmp_path / "old" / "a", now) == []
    assert unfinished(tmp_path / "nowhere" / "a", now) == []


NOW = {"spec": {**SPEC, "seed": 2}, "code": CODE}


def test_a_run_that_a_trainer_works_on_did_not_stop(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    with (run / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert unfinished(tmp_path / "a", NOW) == []
    assert len(unfinished(tmp_path / "a", NOW)) == 1


@pytest.mark.parametrize("at", [40, 20])
def test_a_checkpoint_that_is_pruned_while_it_is_read_is_no_fault(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a trainer that began in between."""
    run = interrupted(tmp_path)
    real = module.complete

    def complete(folder: Path) -> str | None:
        reason = real(folder)
        folders.remove_folder(folder)
        return reason

    if at == 20:
        (run / "step-00000040" / "manifest.json").unlink()
    monkeypatch.setattr(module, "complete", complete)
    assert unfinished(tmp_path / "a", NOW) == []
