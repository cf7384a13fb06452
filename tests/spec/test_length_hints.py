"""Hints that need the length of a run: worked by hand, said only where they are sure."""

from pathlib import Path
from typing import Any

import pytest

from hashtune.spec.length_hints import Length, cut_hints, length_hints, length_of
from hashtune.spec.load import read_params, validate
from hashtune.spec.schema import Duration, Spec

ROOT = Path(__file__).parents[2]
STEPS = {"warmup_fraction": None}
WSD = {"name": "wsd", "decay": "linear", "min_lr_ratio": 0.1}


def spec(schedule: dict[str, Any], **checkpoint: Any) -> Spec:
    params = read_params(ROOT / "params.yaml")
    params["schedule"] |= schedule
    params["checkpoint"] |= {"eval_every_steps": 20, **checkpoint}
    return validate(params)


def said(now: Spec, steps: int | None, *, exact: bool = True) -> list[str]:
    length = None if steps is None else Length(steps, exact)
    return [hint.split(" (")[0] for hint in length_hints(now, length)]


def test_the_shipped_schedule_has_none() -> None:
    assert said(spec({}), 175) == said(spec({}), None) == said(spec({}), 1) == []


@pytest.mark.parametrize(
    ("warmup", "steps", "share"),
    [(10, 100, None), (11, 100, "11%"), (99, 100, "99%"), (1, 6, None), (2, 6, "33%")],
)
def test_a_warm_up_of_about_all_steps(warmup: int, steps: int, share: str | None) -> None:
    found = said(spec({**STEPS, "warmup_steps": warmup}), steps)
    text = f"schedule.warmup_steps {warmup} is {share} of {steps} steps: usual is 3% to 10%"
    assert found == ([text] if share else [])
    bound = said(spec({**STEPS, "warmup_steps": warmup}), steps, exact=False)
    assert bound == ([text.replace(" of", " or more of at most")] if share else [])


@pytest.mark.parametrize(
    ("start", "left", "exact", "words"),
    [
        (
            98,
            1,
            True,
            "leaves 1 of 100 steps",
        ),  # update 98, from 0, is at the peak, 99 the last
        (98, 1, False, "leaves 1 of at most 100 steps"),
        (90, 9, False, "leaves 9 of at most 100 steps"),
        (89, 10, True, None),
        (79, 20, True, None),
        (78, 21, True, "gives 21 of 100 steps"),
        (78, 21, False, None),  # a shorter run decays less
    ],
)
def test_a_decay_that_leaves_next_to_nothing(
    start: int, left: int, exact: bool, words: str | None
) -> None:
    found = said(spec({**WSD, "decay_start": start}), 100, exact=exact)
    text = f"schedule.decay_start {start} {words} to the decay: usual is 10% to 20%"
    assert found == ([text] if words else [])


@pytest.mark.parametrize(
    ("schedule", "steps", "idle"),
    [
        ({"name": "cosine"}, None, True),
        ({"name": "cosine"}, 100, True),
        ({"name": "linear"}, 2, True),
        ({"name": "linear"}, 1, False),  # one update, at the peak
        ({"name": "cosine", "warmup_fraction": 1.0}, 9, False),  # it ends at the peak
        ({"name": "constant"}, 100, False),
        ({**WSD, "decay_fraction": 0.2}, 100, True),
    ],
)
def test_a_floor_of_zero_wastes_the_last_step(
    schedule: dict[str, Any], steps: int | None, idle: bool
) -> None:
    found = said(spec({**schedule, "min_lr_ratio": 0.0}), steps)
    assert [hint[:24] for hint in found] == (["schedule.min_lr_ratio 0:"] if idle else [])
    assert said(spec({**schedule, "min_lr_ratio": 0.01}), steps) == []


@pytest.mark.parametrize(("patience", "idle"), [(1, False), (3, False), (4, True), (9, True)])
def test_a_patience_that_no_run_has(patience: int, idle: bool) -> None:
    """100 steps have five evaluations; four without a new best end the run at its end."""
    found = said(spec({}, early_stop_patience=patience), 100)
    text = f"checkpoint.early_stop_patience {patience} ends no run of 100 steps: it has 5 "
    text += "evaluations, one each 20 steps and at the end"
    assert found == ([text] if idle else [])


@pytest.mark.parametrize(
    ("duration", "rows", "per_step", "length", "cuts"),
    [
        ((1, 175), None, 1, Length(175, False), ""),
        ((1, None), None, 1, None, ""),
        ((1, 175), 222, 1, Length(175, True), ""),
        ((1, 222), 222, 1, Length(222, True), ""),
        ((1, 223), 222, 1, Length(222, True), "1 epoch holds 222 steps (222 rows, 1 a step)"),
        ((2, 500), 222, 4, Length(112, True), "2 epochs hold 112 steps (222 rows, 4 a step)"),
        ((1, 175), 5, 10**9, Length(1, True), "1 epoch holds 1 step (5 rows, 1000000000 a"),
        ((3, None), 10, 3, Length(12, True), ""),
    ],
)
def test_max_steps_only_cuts(
    duration: tuple[int, int | None], rows: int | None, per_step: int, length: Any, cuts: str
) -> None:
    now = Duration(epochs=duration[0], max_steps=duration[1])
    assert length_of(now, rows=rows, rows_per_step=per_step) == length
    found = [] if rows is None else list(cut_hints(now, rows=rows, rows_per_step=per_step))
    assert len(found) == bool(cuts)
    assert all(f"duration.max_steps {now.max_steps} cuts nothing: {cuts}" in hint for hint in found)
