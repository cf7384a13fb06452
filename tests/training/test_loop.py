"""The loop: schedule and position after a skipped step, choice of checkpoint, stops, refusals."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.errors import InputError, Stopped
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training import checkpoint as checkpoints
from hashtune.training import loop as loops
from hashtune.training.batches import Batch
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan, check_plan
from hashtune.training.schedules import lr_at
from hashtune.training.step import EvalResult, StepResult, train_step

MakeLoop = Callable[..., Loop]


class NotFinite(Trainee):
    """Planted fault: states that are NaN."""

    def hidden(self, batch: Batch) -> Tensor:
        return super().hidden(batch) * math.nan


def copy_of(trainee: Trainee) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainee.parameters.items()}


def plant_nan(monkeypatch: pytest.MonkeyPatch, *bad: int) -> list[bool]:
    """Make the n-th call of train_step non-finite; say of each bad one if it left the weights."""
    calls: list[int] = []
    untouched: list[bool] = []

    def step(trainee: Trainee, *args: Any, **settings: Any) -> StepResult:
        calls.append(1)
        if len(calls) not in bad:
            return train_step(trainee, *args, **settings)
        before = copy_of(trainee)
        broken = NotFinite(*(getattr(trainee, field.name) for field in fields(trainee)))
        result = train_step(broken, *args, **settings)
        after = trainee.parameters
        untouched.append(all(torch.equal(before[name], after[name]) for name in before))
        return result

    monkeypatch.setattr(loops, "train_step", step)
    return untouched


def plant_eval(monkeypatch: pytest.MonkeyPatch, *values: float) -> list[dict[str, Tensor]]:
    """Give these eval losses in turn; collects the adapter at each evaluation."""
    seen: list[dict[str, Tensor]] = []

    def evaluate(trainee: Trainee, *args: Any, **settings: Any) -> EvalResult:
        seen.append(copy_of(trainee))
        return EvalResult(values[len(seen) - 1], 0.5)

    monkeypatch.setattr(loops, "evaluate_loss", evaluate)
    return seen


def test_a_whole_run(make_loop: MakeLoop, tmp_path: Path) -> None:
    loop = make_loop("run")
    progress = loop.run()
    assert (progress.step, progress.updates, progress.skipped) == (6, 6, [])
    train = [point for point in progress.points if "train/loss" in point]
    assert [point["step"] for point in train] == [1, 2, 3, 4, 5, 6]
    # cosine from 0.01 to 0.001, 2 of 6 updates warm up (0.3 * 6 = 1.8, rounded)
    rates = [0.005, 0.01, 0.01, 0.00775, 0.00325, 0.001]
    assert [point["train/lr"] for point in train] == pytest.approx(rates)
    assert [p["step"] for p in progress.points if "eval/loss" in p] == [2, 4, 6]
    assert checkpoints.steps(tmp_path / "run") == sorted({6, progress.best_step})
    assert (loop.meter.steps, loop.meter.tokens) == (6, 92)  # two epochs of 46 tokens
    assert train[-1]["train/loss"] < train[0]["train/loss"]
    state = checkpoints.writers.read_json(tmp_path / "run" / "step-00000006" / "state.json")
    assert state["spec"] == {"note": "the spec text"}


def test_a_skipped_step_is_named_and_does_not_move_the_schedule(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched = plant_nan(monkeypatch, 3)
    said: list[str] = []
    loop = make_loop("run", said=said, max_skipped_steps=1)
    progress = loop.run()
    assert untouched == [True]
    assert (progress.step, progress.updates, progress.skipped) == (6, 5, [3])
    assert "  step 3 skipped, not finite; row 4: e4.0, e4.1; row 5: e5.0" in said
    train = [point for point in progress.points if "train/loss" in point]
    assert [point["step"] for point in train] == [1, 2, 4, 5, 6]  # the data position moves on
    schedule = loop.settings.schedule
    expected = [lr_at(update, peak=0.01, total=6, schedule=schedule) for update in range(5)]
    assert [point["train/lr"] for point in train] == expected  # the schedule does not
    assert all(math.isfinite(point["train/loss"]) for point in train)


def test_more_skips_than_allowed_stop_the_run(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_nan(monkeypatch, 2, 4)
    with pytest.raises(InputError, match=r"2 steps with a non-finite .* \(\[2, 4\]\)") as caught:
        make_loop("run", max_skipped_steps=1).run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("non-finite", "optim.lr")
    assert finding.message.endswith("the last one saw row 3: e3.0; row 0: e0.0, e0.1")
    assert finding.fix is not None and "`hashtune step 4`" in finding.fix


def silent(row: Row) -> Row:
    return replace(row, labels=[IGNORE_INDEX] * len(row.labels))


def test_a_step_without_targets_is_refused_and_not_counted_as_non_finite(
    make_loop: MakeLoop, plan: Plan
) -> None:
    """Step 2 sees rows 2 and 3."""
    rows = [silent(row) if row.row in (2, 3) else row for row in plan.rows]
    loop = make_loop("run", the_plan=replace(plan, rows=rows), max_skipped_steps=5)
    with pytest.raises(InputError) as caught:
        loop.run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.message) == ("no-trained-token", "step 2 has no trained token")
    assert (loop.progress.step, loop.progress.skipped) == (1, [])


def test_a_silent_row_beside_a_good_one_is_no_reason_to_skip(
    make_loop: MakeLoop, plan: Plan
) -> None:
    rows = [silent(row) if row.row in (0, 2, 4) else row for row in plan.rows]
    progress = make_loop("run", the_plan=replace(plan, rows=rows)).run()
    assert (progress.updates, progress.skipped) == (6, [])


def test_the_plan_is_refused_with_everything_it_lacks(plan: Plan, make_loop: MakeLoop) -> None:
    """Before a model is loaded: each step without targets, and eval rows without any."""
    settings = make_loop("run").settings
    of = settings.schedule, settings.checkpoint
    rows = [silent(row) if row.row in (2, 3, 5) else row for row in plan.rows]
    check_plan(replace(plan, eval_rows=[silent(rows[0]), rows[0]]), *of)
    with pytest.raises(InputError) as caught:
        check_plan(Plan(rows, plan.steps, [silent(rows[0])]), *of)
    assert [(f.rule, f.file, f.message[:6]) for f in caught.value.findings] == [
        ("no-trained-token", "build/pack/steps.parquet", "step 2"),  # rows 2 and 3
        ("no-trained-token", "build/pack/steps.parquet", "step 5"),  # rows 5 and 2
        ("no-trained-token", "build/pack/eval.parquet", "no eva"),
    ]


def test_without_any_finite_step_it_is_not_the_learning_rate(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_nan(monkeypatch, 1, 2)
    with pytest.raises(InputError) as caught:
        make_loop("run", max_skipped_steps=1).run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("non-finite", "base_model")
    assert finding.message.startswith(
        "2 steps with a non-finite loss or gradient ([1, 2]), and no step was finite; the last"
    )
    assert finding.fix is not None
    assert "weights and the precision" in finding.fix and "optim.lr" not in finding.fix


def test_a_non_finite_eval_loss_before_any_update_is_not_the_learning_rate(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_nan(monkeypatch, 1, 2)
    plant_eval(monkeypatch, math.nan)
    with pytest.raises(InputError, match="the eval loss after step 2 is nan") as caught:
        make_loop("run", max_skipped_steps=9).run()
    assert [finding.field for finding in caught.value.findings] == ["base_model"]


def test_no_skip_allowed(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_nan(monkeypatch, 1)
    with pytest.raises(InputError, match="1 steps with a non-finite"):
        make_loop("run").run()


def test_c20_a_loss_that_is_not_finite_stops_with_step_and_rows(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched = plant_nan(monkeypatch, 3)
    said: list[str] = []
    with pytest.raises(InputError) as caught:
        make_loop("run", said=said).run()
    assert "  step 3 skipped, not finite; row 4: e4.0, e4.1; row 5: e5.0" in said
    (finding,) = caught.value.findings
    assert finding.message == (
        "1 steps with a non-finite loss or gradient ([3]); the last one saw row 4: e4.0, e4.1; "
        "row 5: e5.0"
    )
    assert untouched == [True]


def test_skips_survive_a_resume(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_nan(monkeypatch, 2)
    straight = make_loop("straight", max_skipped_steps=1)
    straight.run()
    plant_nan(monkeypatch, 2)
    with pytest.raises(Stopped):
        make_loop("cut", max_skipped_steps=1, stop_after=3).run()
    plant_nan(monkeypatch)
    resumed = make_loop("cut", max_skipped_steps=1)
    assert resumed.run() == straight.progress
    with pytest.raises(Stopped):
        plant_nan(monkeypatch, 2)
        make_loop("again", max_skipped_steps=1, stop_after=3).run()
    plant_nan(monkeypatch, 1)
    with pytest.raises(InputError, match=r"\[2, 4\]"):  # counted over both lives of the run
        make_loop("again", max_skipped_steps=1).run()


def test_the_best_checkpoint_becomes_the_adapter(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = plant_eval(monkeypatch, 3.0, 1.0, 2.0)
    loop = make_loop("run", select="best")
    progress = loop.run()
    assert (progress.best_step, progress.best_loss) == (4, 1.0)
    assert all(torch.equal(loop.trainee.parameters[n], t) for n, t in seen[1].items())
    assert any(not torch.equal(loop.trainee.parameters[n], t) for n, t in seen[2].items())
    assert checkpoints.steps(tmp_path / "run") == [4, 6]  # keep_last 1 and the best


def test_select_last_ignores_the_best(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = plant_eval(monkeypatch, 1.0, 3.0, 2.0)
    loop = make_loop("run", select="last")
    assert loop.run().best_step == 2
    assert all(torch.equal(loop.trainee.parameters[n], t) for n, t in seen[2].items())


def test_the_first_of_equal_losses_is_the_best(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_eval(monkeypatch, 1.0, 1.0, 1.0)
    assert make_loop("run", select="best").run().best_step == 2


def test_a_broken_best_checkpoint_is_refused_not_taken(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant_eval(monkeypatch, 1.0, 2.0, 3.0)
    with pytest.raises(Stopped):
        make_loop("run", select="best", stop_after=4).run()
    file = tmp_path / "run" / "step-00000002" / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    plant_eval(monkeypatch, 3.0)
    with pytest.raises(InputError, match=r"tensors.safetensors differs from its manifest"):
        make_loop("run", select="best").run()


EVERY_STEP = {"every_steps": 1, "eval_every_steps": 1, "early_stop_patience": 2}


def since_best(loop: Loop) -> dict[int, int]:
    points = [point for point in loop.progress.points if "eval/loss" in point]
    return {point["step"]: point["eval/since_best"] for point in points}


def test_early_stopping_counts_evaluations_and_takes_the_best(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = plant_eval(monkeypatch, 3.0, 1.0, 2.0, 1.0)
    said: list[str] = []
    loop = make_loop("run", select="best", said=said, **EVERY_STEP)
    progress = loop.run()
    assert (progress.step, progress.best_step, loop.stopped_early) == (4, 2, True)
    assert since_best(loop) == {1: 0, 2: 0, 3: 1, 4: 2}  # an equal loss is no better one
    assert all(torch.equal(loop.trainee.parameters[n], t) for n, t in seen[1].items())
    assert said.count("  no better eval loss than at step 2: training ends") == 1


def test_early_stopping_survives_a_resume(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_eval(monkeypatch, 3.0, 1.0, 2.0, 2.5)
    straight = make_loop("straight", **EVERY_STEP)
    straight.run()
    plant_eval(monkeypatch, 3.0, 1.0, 2.0)
    with pytest.raises(Stopped):
        make_loop("cut", stop_after=3, **EVERY_STEP).run()
    plant_eval(monkeypatch, 2.5)
    resumed = make_loop("cut", **EVERY_STEP)
    assert resumed.run() == straight.progress
    plant_eval(monkeypatch)  # killed after the last checkpoint: it evaluates and trains nothing
    again = make_loop("cut", **EVERY_STEP)
    assert again.run() == straight.progress
    assert again.meter.steps == 0


def test_a_loss_that_falls_never_stops_early(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_eval(monkeypatch, 6.0, 5.0, 5.5, 4.0, 4.5, 3.0)
    loop = make_loop("run", **EVERY_STEP)
    assert loop.run().step == 6
    assert not loop.stopped_early


def test_without_patience_nothing_is_counted_in_the_curves(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_eval(monkeypatch, 1.0, 2.0, 3.0)
    progress = make_loop("run").run()
    assert progress.step == 6
    assert not any("eval/since_best" in point for point in progress.points)


def test_a_non_finite_eval_loss_stops(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_eval(monkeypatch, math.nan)
    with pytest.raises(InputError, match="the eval loss after step 2 is nan"):
        make_loop("run").run()


def test_a_stop_ends_with_a_checkpoint_between_the_cadence(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    with pytest.raises(Stopped, match="SIGTERM after step 3 of 6; `dvc repro` continues"):
        make_loop("run", stop_after=3).run()
    newest, notes = checkpoints.newest(tmp_path / "run")
    assert newest == tmp_path / "run" / "step-00000003"
    assert notes == []


def test_a_stop_during_the_last_step_just_finishes(make_loop: MakeLoop) -> None:
    assert make_loop("run", stop_after=6).run().step == 6


def test_killed_after_the_last_checkpoint_trains_nothing_again(make_loop: MakeLoop) -> None:
    first = make_loop("run")
    first.run()
    second = make_loop("run")
    assert second.run() == first.progress
    assert second.meter.steps == 0
    assert all(
        torch.equal(second.trainee.parameters[n], t) for n, t in copy_of(first.trainee).items()
    )


def test_a_foreign_checkpoint_is_refused(make_loop: MakeLoop) -> None:
    """Planted mixed checkpoint: the folder of this identity holds another one's state."""
    with pytest.raises(Stopped):
        make_loop("run", stop_after=3, identity="b" * 64).run()
    with pytest.raises(InputError, match="foreign-checkpoint"):
        make_loop("run").run()


def test_other_trainable_parameters_are_refused(
    make_loop: MakeLoop, make_trainee: Callable[..., Trainee]
) -> None:
    with pytest.raises(Stopped):
        make_loop("run", stop_after=3).run()
    with pytest.raises(InputError, match="holds other parameters"):
        make_loop("run", trainee=make_trainee(targets=["q_proj", "k_proj"])).run()
