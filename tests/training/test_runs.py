"""Run folders: identity, one trainer at a time, what a finished run leaves."""

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hashtune import writers
from hashtune.errors import Stopped
from hashtune.training.handed import unrecorded
from hashtune.training.runs import exclusive, finish, take_result, train_identity
from hashtune.training.signals import StopRequest

LOCK = Path("no/dvc.lock")
PARTS: dict[str, Any] = {
    "inputs": {"build/pack/train.parquet": "a" * 64, "build/code/train.json": "b" * 64},
    "optim": {"lr": 1e-4, "name": "adamw"},
    "seed": 1,
    "init_seed": 1,
    "precision": "fp32",
    "kernels": "plain",
}
HOLDER = """
import fcntl, sys
handle = open(sys.argv[1], "a+")
fcntl.flock(handle, fcntl.LOCK_EX)
handle.write("pid 4242")
handle.flush()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(run: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the run's lock until its stdin closes."""
    run.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def outputs(folder: Path) -> dict[str, Path]:
    return {"adapter": folder / "adapter", "report.json": folder / "reports" / "train.json"}


def fill(folder: Path, text: str) -> None:
    writers.write_text(folder / "adapter" / "weights", text)
    writers.write_text(folder / "reports" / "train.json", "{}\n")


def test_identity_changes_with_every_part() -> None:
    changed = [
        {**PARTS, "seed": 2},
        {**PARTS, "init_seed": 2},
        {**PARTS, "precision": "bf16"},
        {**PARTS, "optim": {"lr": 1.0001e-4, "name": "adamw"}},
        {**PARTS, "optim": {"lr": 1e-4, "name": "sgd"}},
        {**PARTS, "inputs": {**PARTS["inputs"], "build/code/train.json": "c" * 64}},
        {**PARTS, "inputs": {**PARTS["inputs"], "build/pack/steps.parquet": "c" * 64}},
        {name: part for name, part in PARTS.items() if name != "seed"},
    ]
    identities = [train_identity(parts) for parts in (PARTS, *changed)]
    assert len(set(identities)) == len(identities)
    assert all(len(identity) == 64 for identity in identities)


def test_identity_does_not_depend_on_the_order_of_keys() -> None:
    assert train_identity(dict(reversed(PARTS.items()))) == train_identity(PARTS)


def test_the_lock_is_free_at_first_and_says_who_holds_it(tmp_path: Path) -> None:
    with exclusive(tmp_path / "run", StopRequest()) as lock:
        assert not lock.waited
        told = writers.read_json(tmp_path / "run" / "lock")
        assert told["pid"] == os.getpid()
        assert sorted(told) == ["host", "pid", "start"]
    with exclusive(
        tmp_path / "run", StopRequest()
    ) as lock:  # released, and a stale text is no lock
        assert not lock.waited


def test_the_second_trainer_waits_and_takes_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, first, second = tmp_path / "run", tmp_path / "first", tmp_path / "second"
    with held_elsewhere(run) as process:
        fill(first, "trained")

        def end() -> None:
            finish(run, outputs(first), lock=LOCK)
            process.stdin.close()  # type: ignore[union-attr]

        timer = threading.Timer(0.6, end)
        timer.start()
        with exclusive(run, StopRequest()) as lock:
            assert lock.waited
            assert take_result(run, outputs(second))
        timer.join()
    assert (second / "adapter" / "weights").read_text() == "trained"
    assert (second / "reports" / "train.json").read_text() == "{}\n"
    assert "another trainer holds this run (pid 4242); waiting" in capsys.readouterr().out


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "run") as process:
        timer = threading.Timer(0.6, process.kill)
        timer.start()
        with exclusive(tmp_path / "run", StopRequest()) as lock:
            assert lock.waited
            assert not take_result(tmp_path / "run", outputs(tmp_path))
        timer.join()


def test_a_look_at_the_lock_is_no_trainer(tmp_path: Path) -> None:
    """`hashtune doctor` tries the lock of every run: a forced run must not take an old result."""
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        timer = threading.Timer(0.05, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        timer.start()
        with exclusive(tmp_path, StopRequest()) as lock:
            assert not lock.waited
        timer.join()


def test_a_waiting_trainer_can_be_stopped(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.signal = "SIGINT"
    with held_elsewhere(tmp_path / "run") as process:
        end = threading.Timer(3, process.kill)  # a trainer that waits on must fail, not hang
        end.start()
        with (
            pytest.raises(Stopped, match="SIGINT while another trainer held this run"),
            exclusive(tmp_path / "run", stop),
        ):
            raise AssertionError("it waited until the lock was free")
        end.cancel()
        process.kill()


def test_finish_keeps_the_outputs_and_drops_the_resume_state(tmp_path: Path) -> None:
    run = tmp_path / "run"
    states = ("step-00000002", "step-00000004", ".step-00000006.x.tmp", "stable", ".stable.x.tmp")
    for name in (*states, "result/adapter"):
        (run / name).mkdir(parents=True)
    writers.write_text(run / "result" / "adapter" / "stale", "of an earlier run")
    fill(tmp_path, "trained")
    finish(run, outputs(tmp_path), lock=LOCK)
    assert sorted(path.name for path in run.iterdir()) == ["result"]
    found = sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file())
    assert found == ["result/adapter/weights", "result/manifest.json", "result/report.json"]


def test_taking_a_result_replaces_what_lies_there(tmp_path: Path) -> None:
    fill(tmp_path / "one", "trained")
    finish(tmp_path / "run", outputs(tmp_path / "one"), lock=LOCK)
    fill(tmp_path / "two", "other")
    writers.write_text(tmp_path / "two" / "adapter" / "stale", "x")
    assert take_result(tmp_path / "run", outputs(tmp_path / "two"))
    assert [path.name for path in (tmp_path / "two" / "adapter").iterdir()] == ["weights"]
    assert (tmp_path / "two" / "adapter" / "weights").read_text() == "trained"


@pytest.mark.parametrize("damage", ["result/adapter/weights", "result/manifest.json"])
def test_a_damaged_result_is_not_taken(damage: str, tmp_path: Path) -> None:
    fill(tmp_path / "one", "trained")
    finish(tmp_path / "run", outputs(tmp_path / "one"), lock=LOCK)
    file = tmp_path / "run" / damage
    file.write_bytes(file.read_bytes()[:-2] + b"?")
    assert not take_result(tmp_path / "run", outputs(tmp_path / "two"))
    assert not (tmp_path / "two").exists()


def recorded(report: Path) -> str:
    """A dvc.lock that holds this report."""
    return f"path: reports/train.json\n md5: {hashlib.md5(report.read_bytes()).hexdigest()}\n"


def test_a_result_that_dvc_did_not_live_to_record_is_known(tmp_path: Path) -> None:
    run, lock, other = tmp_path / "run", tmp_path / "dvc.lock", tmp_path / "other.lock"
    lock.write_text("of the stages before\n")
    other.write_text("of the stages before\n")
    fill(tmp_path, "trained")
    finish(run, outputs(tmp_path), lock=lock)
    assert unrecorded(run, lock, report="report.json")
    assert not unrecorded(run, other, report="report.json")  # another clone trains itself
    assert not unrecorded(tmp_path / "none", lock, report="report.json")


@pytest.mark.parametrize("what", ["recorded", "touched", "gone"])
def test_after_dvcs_record_a_forced_run_trains(what: str, tmp_path: Path) -> None:
    run, lock = tmp_path / "run", tmp_path / "dvc.lock"
    lock.write_text("of the stages before\n")
    fill(tmp_path, "trained")
    finish(run, outputs(tmp_path), lock=lock)
    if what == "recorded":
        lock.write_text(recorded(run / "result/report.json"))
    elif what == "touched":  # `git checkout dvc.lock` after it
        os.utime(lock, ns=(1, 1))
    else:
        lock.unlink()
    assert not unrecorded(run, lock, report="report.json")


def test_a_forced_run_that_left_dvc_lock_as_it_was_is_recorded(tmp_path: Path) -> None:
    run, lock = tmp_path / "run", tmp_path / "dvc.lock"
    fill(tmp_path, "trained")
    lock.write_text(recorded(outputs(tmp_path)["report.json"]))
    finish(run, outputs(tmp_path), lock=lock)
    assert not unrecorded(run, lock, report="report.json")
