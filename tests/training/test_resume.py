"""Exact resume: a run stopped however often ends in the same bits; planted faults do not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashtune import writers
from hashtune.errors import InputError, Stopped
from hashtune.training import checkpoint as checkpoints
from hashtune.training import loop as loops
from hashtune.training.loop import Loop
from hashtune.training.plan import Plan
from hashtune.training.step import EvalResult

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


def best_at_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eval loss only rises after step 2."""
    losses: dict[int, float] = {}

    def evaluate(*arguments: Any, **options: Any) -> EvalResult:
        digest = hash(tuple(float(p.detach().sum()) for p in arguments[0].parameters.values()))
        return EvalResult(losses.setdefault(digest, 1.0 + len(losses)), 0.5)

    monkeypatch.setattr(loops, "evaluate_loss", evaluate)


@pytest.mark.parametrize(("every", "told"), [(1, "resuming after step 1"), (2, None)])
def test_a_broken_best_checkpoint_is_seen_at_the_start_not_at_the_end(
    every: int, told: str | None, make_loop: MakeLoop, tmp_path: Path, monkeypatch: Any
) -> None:
    """Without it the run could not hand out its adapter, hours later and every time again."""
    best_at_2(monkeypatch)
    changes = {"every_steps": every, "keep_last": 9, "select": "best"}
    straight = make_loop("straight", **changes)
    straight.run()
    assert straight.adapter_step == 2
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=5, **changes).run()
    (tmp_path / "cut" / "step-00000002" / "state.json").write_text("{")
    said: list[str] = []
    resumed = make_loop("cut", said=said, **changes)
    if told is None:
        with pytest.raises(InputError, match="no-checkpoint"):
            resumed.run()
        return
    resumed.run()
    skipped = "skipped: its best one, step-00000002: state.json has 1 bytes"
    assert said[0].startswith(f"  step-00000005 {skipped}")
    assert any(line.startswith(f"  {told}") for line in said)
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


def test_c48_the_next_step_after_a_resume_has_the_same_loss(make_loop: MakeLoop) -> None:
    """With dropout, stopped in the middle of an epoch; its generators are those of the save."""
    straight = stop_at(make_loop, "straight", [], dropout=0.5)
    with pytest.raises(Stopped):
        make_loop("cut", dropout=0.5, stop_after=2).run()
    torch.manual_seed(99)  # what a skip or a fetch would draw
    with pytest.raises(Stopped):
        make_loop("cut", dropout=0.5, stop_after=3).run()
    loaded = checkpoints.directory(make_loop("cut").settings.run, 3)
    points = writers.read_json(loaded / "state.json")["progress"]["points"]
    losses = [(point["step"], point["train/loss"]) for point in points if "train/loss" in point]
    expected = [
        (point["step"], point["train/loss"])
        for point in straight.progress.points
        if point.get("train/loss") is not None
    ]
    assert losses == expected[:3]


def test_c53_micro_batches_split_otherwise_go_on_in_the_same_rows(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row or both of a step at a time: the rows are the plan's, the sums differ by rounding."""
    straight = stop_at(make_loop, "straight", [])
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=3).run()
    loop = make_loop("cut", batch={"micro": 2, "grad_accum": 1})
    loop.run()
    assert loop.meter.first_step == 4
    for name, parameter in loop.trainee.parameters.items():
        torch.testing.assert_close(parameter, straight.trainee.parameters[name])


def test_c55_a_resume_at_the_last_step_gives_the_result_and_no_fewer_steps(
    make_loop: MakeLoop,
) -> None:
    """Killed after the last checkpoint, before the outputs: nothing is left to train."""
    straight = stop_at(make_loop, "straight", [])
    again = make_loop("straight")
    again.run()
    assert again.meter.steps == 0
    assert again.progress.step == 6
    assert equal(straight, again)
    assert curves(again) == curves(straight)


def test_c55_a_checkpoint_behind_the_plan_is_an_error(make_loop: MakeLoop, plan: Plan) -> None:
    stop_at(make_loop, "run", [])
    short = Plan(plan.rows, plan.steps[:4], plan.eval_rows)
    with pytest.raises(InputError, match="was written after step 6, the plan has 4"):
        make_loop("run", the_plan=short).run()
