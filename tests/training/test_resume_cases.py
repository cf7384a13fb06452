"""C46, C51, C53 and C55 of the project's list of cases: what a run is after it was stopped."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune.errors import Stopped
from hashtune.packing.steps import plan_steps
from hashtune.records import Row
from hashtune.training import checkpoint as checkpoints
from hashtune.training import loop as loops
from hashtune.training.loop import Loop
from hashtune.training.plan import Plan

MakeLoop = Callable[..., Loop]
MakeRow = Callable[[int, list[int]], Row]
MADE_OF: dict[str, Any] = {"spec": {}, "code": {}}


def test_c46_ten_rows_three_epochs_stopped_after_step_7(
    make_loop: MakeLoop, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 2, 5 steps an epoch: step 7 is the second of the second epoch."""
    rows = [make_row(number, [3 + number % 3]) for number in range(10)]
    steps = plan_steps(rows, rows_per_step=2, epochs=3, max_steps=None, data_seed=0)
    assert [(step.step, step.epoch) for step in steps][4:7] == [(5, 1), (6, 2), (7, 2)]
    plan = Plan(rows, [step.rows for step in steps], [make_row(11, [4])])
    seen: dict[str, list[list[int]]] = {"straight": [], "cut": []}
    real = loops.train_step

    def run(name: str, **more: Any) -> Loop:
        def step(trainee: Any, optimizer: Any, taken: Any, **settings: Any) -> Any:
            seen[name].append([row.row for row in taken])
            return real(trainee, optimizer, taken, **settings)

        monkeypatch.setattr(loops, "train_step", step)
        loop = make_loop(name, the_plan=plan, dropout=0.1, **more)
        loop.run()
        return loop

    straight = run("straight")
    with pytest.raises(Stopped):
        run("cut", stop_after=7)
    assert len(seen["cut"]) == 7
    cut = run("cut")
    assert seen["cut"] == seen["straight"] == [step.rows for step in steps]
    used = Counter(row for step in seen["cut"] for row in step)
    assert used == dict.fromkeys(range(10), 3)
    assert seen["cut"][:5] != seen["cut"][5:10]  # the second epoch has an order of its own
    assert straight.progress.points == cut.progress.points


def save(run: Path, step: int, best: int | None) -> None:
    progress = checkpoints.Progress(step=step, updates=step, best_step=best)
    checkpoints.save(run, progress, {"adapter.x": torch.ones(1)}, identity="1" * 64, **MADE_OF)


@pytest.mark.parametrize(("keep_last", "kept"), [(1, [200, 400]), (2, [200, 300, 400])])
def test_c51_best_at_200_of_400_is_kept(keep_last: int, kept: list[int], tmp_path: Path) -> None:
    """Saved every 100, best at 200. keep_last counts the newest; the best comes on top of them."""
    for step in (100, 200, 300, 400):
        best = 200 if step >= 200 else 100
        save(tmp_path, step, best)
        checkpoints.prune(tmp_path, keep_last=keep_last, best_step=best, written=step)
    assert checkpoints.steps(tmp_path) == kept
    loaded = checkpoints.load(
        checkpoints.directory(tmp_path, 200),
        identity="1" * 64,
        parameters=["x"],
        steps=400,
        **MADE_OF,
    )
    assert loaded.progress.step == 200


def test_c53_the_position_is_one_of_rows() -> None:
    """8 ranks of 1 row, accumulated twice, are 16 rows a step, and so are 4 ranks with 4: after
    step 100 the next row is number 1,600 of the epoch's order. Ranks beyond one are refused."""
    rows = [Row(n, [str(n)], [2], [1, 2], [-100, 2]) for n in range(4000)]
    one, other = (
        plan_steps(rows, rows_per_step=math.prod(split), epochs=1, max_steps=None, data_seed=1)
        for split in ((1, 2, 8), (1, 4, 4))
    )
    assert one == other
    order = [row for step in one for row in step.rows]
    assert one[100].rows == order[1600:1616]


def test_c55_a_resumed_run_reaches_every_step_of_its_plan(make_loop: MakeLoop, plan: Plan) -> None:
    """The position never runs past the data: rows come back in later epochs, as planned."""
    with pytest.raises(Stopped, match="SIGTERM after step 5 of 6"):
        make_loop("run", stop_after=5).run()
    resumed = make_loop("run")
    progress = resumed.run()
    assert (progress.step, progress.updates) == (len(plan.steps), 6)
    assert (resumed.meter.first_step, resumed.meter.steps) == (6, 1)
    assert max(point["step"] for point in progress.points) == 6
