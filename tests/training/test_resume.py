"""Exact resume: a run stopped however often ends in the same bits; planted faults do not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashtune.errors import Stopped
from hashtune.training import checkpoint as checkpoints
from hashtune.training import loop as loops
from hashtune.training.loop import Loop

MakeLoop = Callable[..., Loop]


def stop_at(make_loop: MakeLoop, run: str, stops: Sequence[int], **changes: Any) -> Loop:
    """A run stopped after these steps, each time resumed with a fresh model, then finished."""
    for step in stops:
        with pytest.raises(Stopped):
            make_loop(run, stop_after=step, **changes).run()
    loop = make_loop(run, **changes)
    loop.run()
    return loop


def curves(loop: Loop) -> dict[str, bytes]:
    folder = loop.curves_folder
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def same_adapter(one: Loop, other: Loop) -> bool:
    pairs = zip(one.trainee.parameters.items(), other.trainee.parameters.items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def equal(one: Loop, other: Loop) -> bool:
    return same_adapter(one, other) and one.progress == other.progress


@pytest.mark.parametrize(
    ("stops", "changes"),
    [
        ([1], {"dropout": 0.1, "select": "best"}),
        ([2], {"dropout": 0.1, "select": "last"}),
        ([3], {"dropout": 0.1, "select": "best"}),
        ([5], {"dropout": 0.1, "select": "best"}),
        ([1, 2, 3, 4, 5], {"dropout": 0.1, "select": "best"}),
        ([4], {"dropout": 0.0, "select": "last"}),
        ([3], {"dropout": 0.1, "optim": {"name": "sgd", "lr": 0.5}}),
        ([3], {"dropout": 0.1, "optim": {"name": "adamw_8bit"}}),
        ([3], {"dropout": 0.1, "optim": {"name": "muon", "beta1": 0.95}}),
        ([3], {"dropout": 0.1, "optim": {"name": "adafactor", "eps": 1e-30}}),
        ([1, 4], {"dropout": 0.1, "optim": {"neftune_alpha": 5.0}}),
    ],
)
def test_resume_is_exact(stops: list[int], changes: dict[str, Any], make_loop: MakeLoop) -> None:
    straight = stop_at(make_loop, "straight", [], **changes)
    resumed = stop_at(make_loop, "resumed", stops, **changes)
    assert same_adapter(straight, resumed)
    assert resumed.progress == straight.progress
    assert resumed.progress.points == straight.progress.points
    assert curves(resumed) == curves(straight)
    assert resumed.meter.first_step == stops[-1] + 1


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stops=st.sets(st.integers(1, 5), min_size=1, max_size=3), cadence=st.integers(1, 4))
def test_property_any_stops_any_cadence(
    stops: set[int], cadence: int, make_loop: MakeLoop, tmp_path: Path
) -> None:
    """How often checkpoints are written decides nothing."""
    changes = {"dropout": 0.1}
    name = f"{sorted(stops)}-{cadence}"
    straight = stop_at(make_loop, f"straight-{name}", [], **changes)
    cut = stop_at(make_loop, f"cut-{name}", sorted(stops), every_steps=cadence, **changes)
    assert equal(straight, cut)


def test_a_broken_newest_checkpoint_costs_steps_but_no_bits(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    straight = stop_at(make_loop, "straight", [], dropout=0.1)
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=5, dropout=0.1, keep_last=2).run()
    (tmp_path / "cut" / "step-00000005" / "state.json").unlink()
    said: list[str] = []
    resumed = make_loop("cut", dropout=0.1, keep_last=2, said=said)
    resumed.run()
    assert said[:2] == [
        "  step-00000005 skipped: state.json is missing",
        "  resuming after step 4 from step-00000004",
    ]
    assert equal(straight, resumed)


def test_a_stop_behind_a_broken_checkpoint_loses_nothing(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    straight = stop_at(make_loop, "straight", [], dropout=0.1)
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=2, dropout=0.1).run()
    (tmp_path / "cut" / "step-00000005").mkdir()  # what a power loss left
    resumed = stop_at(make_loop, "cut", [3], dropout=0.1)
    assert resumed.meter.first_step == 4
    assert equal(straight, resumed)


def resumed_with_a_fault(make_loop: MakeLoop, plant: Callable[[], None]) -> tuple[Loop, Loop]:
    straight = stop_at(make_loop, "straight", [], dropout=0.1)
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=3, dropout=0.1).run()
    loop = make_loop("cut", dropout=0.1)
    plant()
    loop.run()
    return straight, loop


def test_planted_fault_random_states_not_restored(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant() -> None:
        monkeypatch.setattr(loops, "restore_rng", lambda states, tensors: None)

    straight, faulty = resumed_with_a_fault(make_loop, plant)
    assert not same_adapter(straight, faulty)
    assert straight.progress.points != faulty.progress.points


@pytest.mark.parametrize("off", [-1, 1])
def test_planted_fault_data_position_off_by_one(
    off: int, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoints.load

    def plant() -> None:
        def load(folder: Path, **settings: Any) -> checkpoints.Loaded:
            loaded = real(folder, **settings)
            loaded.progress.step += off
            return loaded

        monkeypatch.setattr(checkpoints, "load", load)

    straight, faulty = resumed_with_a_fault(make_loop, plant)
    assert not same_adapter(straight, faulty)
    assert not equal(straight, faulty)


def test_planted_fault_optimizer_state_lost(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant() -> None:
        monkeypatch.setattr(loops, "restore_optimizer", lambda *args: None)

    straight, faulty = resumed_with_a_fault(make_loop, plant)
    assert not same_adapter(straight, faulty)


def test_planted_fault_schedule_restarts(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoints.load

    def plant() -> None:
        def load(folder: Path, **settings: Any) -> checkpoints.Loaded:
            loaded = real(folder, **settings)
            loaded.progress.updates = 0
            return loaded

        monkeypatch.setattr(checkpoints, "load", load)

    straight, faulty = resumed_with_a_fault(make_loop, plant)
    assert not same_adapter(straight, faulty)


def test_c46_rows_after_a_resume_are_the_rows_of_the_plan(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the second epoch: every row is still used exactly twice, in the plan's order."""
    seen: list[list[int]] = []
    real = loops.train_step

    def step(trainee: Any, optimizer: Any, rows: Any, **settings: Any) -> Any:
        seen.append([row.row for row in rows])
        return real(trainee, optimizer, rows, **settings)

    monkeypatch.setattr(loops, "train_step", step)
    stop_at(make_loop, "run", [2, 4])
    assert seen == [[0, 1], [2, 3], [4, 5], [3, 0], [5, 2], [1, 4]]
