"""The seconds of a rerun: the base's run saw 175 of its 222 rows, one a step, in 160 s."""

import hashlib
import json

import pytest

from hashtune.review.seconds import rows_seen

PACKED = 222


@pytest.fixture(autouse=True)
def measured(two) -> None:
    for name, seconds in (("train", 160.0), ("evaluate", 20.0)):
        file = two.base / f"reports/machine/{name}.json"
        file.write_text(json.dumps({"train_seconds": seconds}), encoding="utf-8")


def seconds_of_train(two) -> float:
    [found] = [rerun.seconds for rerun in two.review().reruns if rerun.stage == "train"]
    return found


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({"optim.lr": 5e-4}, 160.0),
        ({"duration.max_steps": 350, "duration.epochs": 2}, 320.0),  # 350 of 444 rows
        ({"duration.max_steps": 4375}, 160.0 * 222 / 175),  # an epoch ends it, 25 times would not
        ({"duration.max_steps": None}, 160.0 * 222 / 175),
        ({"duration.max_steps": None, "duration.epochs": 3}, 160.0 * 666 / 175),
        ({"batch.grad_accum": 4}, 160.0 * 222 / 175),  # 700 rows, and there are 222
        ({"batch.grad_accum": 4, "duration.max_steps": 50}, 160.0 * 200 / 175),
    ],
)
def test_train_is_scaled_by_the_rows_that_it_sees(two, values, seconds):
    two.set(values)
    assert seconds_of_train(two) == pytest.approx(seconds)


def pack_other_rows(two, rows: int) -> list[str]:
    """The head's report of pack says other rows; its md5 before and after."""
    report = two.head / "reports/pack.json"
    before = report.read_bytes()
    after = before.replace(b'"rows": 222', f'"rows": {rows}'.encode())
    report.write_bytes(after)
    return [hashlib.md5(content, usedforsecurity=False).hexdigest() for content in (before, after)]


def test_rows_that_the_head_packed_itself_count(two):
    two.set({"duration.max_steps": None})
    old, new = pack_other_rows(two, 444)
    assert seconds_of_train(two) == pytest.approx(160.0 * 222 / 175)  # no report that DVC recorded
    lock = two.head / "dvc.lock"
    lock.write_text(lock.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert seconds_of_train(two) == pytest.approx(160.0 * 444 / 175)
    two.set({"data.max_rows": 100})  # and not of these params: taken to be as many as the base's
    assert seconds_of_train(two) == pytest.approx(160.0 * 222 / 175)


def test_without_a_lock_or_a_report_the_steps_decide(two):
    (two.base / "reports/pack.json").unlink()
    (two.head / "dvc.lock").unlink()
    two.set({"duration.max_steps": 350})
    assert seconds_of_train(two) == pytest.approx(320.0)
    two.set({"duration.max_steps": None})  # then nothing says how long
    assert seconds_of_train(two) == pytest.approx(160.0)


def test_other_stages_are_not_scaled(two):
    two.set({"duration.max_steps": 350, "duration.epochs": 2})
    [evaluate] = [rerun for rerun in two.review().reruns if rerun.stage == "evaluate"]
    assert evaluate.seconds == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("duration", "packed", "seen"),
    [
        ({"epochs": 2, "max_steps": 10}, 100, 40),
        ({"epochs": 2, "max_steps": None}, 15, 30),
        ({"epochs": 2, "max_steps": 10}, None, 40),
        ({"epochs": 2, "max_steps": None}, None, None),
        ({"epochs": True, "max_steps": "10"}, 15, None),  # no counts
        ({}, 15, None),
    ],
)
def test_rows_seen(duration, packed, seen):
    batch = {"micro": 2, "grad_accum": 2, "world_size": 1}
    assert rows_seen({"batch": batch, "duration": duration}, packed) == seen
