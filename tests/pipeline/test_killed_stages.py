"""SIGKILL in the middle of a stage other than train: nothing half-written is trusted by the next
run, and what was answered is not answered again."""

import os
import signal
import time

import pytest

from hashtune.lineage.differences import first_difference


def stage_process(toy, stage):
    """Start a stage alone, as DVC starts it."""
    shell = f"exec env PYTHONPATH=src python -m hashtune.stages.{stage}"
    return toy.start("bash", "-c", shell)


def kill_when(process, ready):
    """SIGKILL as soon as `ready` gives something; False when the stage ended before."""
    while process.poll() is None:
        if list(ready()):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.0005)
    return False


@pytest.mark.parametrize("stage", ["prepare", "tokenize", "pack"])
def test_killed_while_it_writes(toy, stage):
    build = toy.path / "build"
    (build / stage).rename(build / f"recorded-{stage}")  # DVC removes outs before it runs a stage
    with stage_process(toy, stage) as process:
        killed = kill_when(process, lambda: build.glob(f".{stage}.*.tmp/*"))
    assert killed, "the test was too slow to kill the stage"
    assert not (build / stage).exists()  # no folder under its name, half or whole
    toy.run("dvc", "repro", "-f", "-s", stage)
    assert first_difference(build / f"recorded-{stage}", build / stage) is None


def test_a_killed_baseline_goes_on_after_its_last_batch(toy):
    answers, build = toy.home / "store/answers", toy.path / "build"
    (build / "baseline").rename(build / "recorded")
    with stage_process(toy, "baseline") as process:
        killed = kill_when(process, lambda: answers.glob("*/*.json"))
    assert killed, "the test was too slow to kill the stage"
    assert not (build / "baseline").exists()
    kept = len(list(answers.glob("*/*.json")))
    output = toy.run("dvc", "repro", "-f", "-s", "baseline")
    assert f"{kept} batches were kept from a run that was stopped" in output
    assert first_difference(build / "recorded", build / "baseline") is None
    assert not list(answers.iterdir())
