"""`dvc repro`: every stage runs once, nothing twice, and train gives the same bits again."""

import shutil
import signal
import time

import pytest
import yaml


def test_every_stage_leaves_its_report(toy):
    for stage in yaml.safe_load((toy.path / "dvc.yaml").read_text())["stages"]:
        assert stage == "code" or toy.report(stage), stage
    assert toy.report("gate")["verdict"] == "pass"
    assert toy.report("release")["released"] is True
    assert toy.report("train")["steps"] == 6


def test_again_nothing_runs(toy):
    output = toy.run("dvc", "repro")
    assert toy.stages(output) == []
    assert toy.git("status", "--porcelain") == ""


def test_forced_train_starts_at_step_1_and_gives_the_same_bits(toy):
    before = toy.adapter_sha256()
    shutil.rmtree(toy.home / "store/runs")
    output = toy.run("dvc", "repro", "-f", "-s", "train")
    assert toy.stages(output) == ["train"]
    assert "starting at step 1" in output
    assert "step 1/6" in output
    assert toy.adapter_sha256() == before


def test_finished_run_leaves_no_resume_state(toy):
    output = toy.run("dvc", "repro", "-f", "-s", "train")
    assert "starting at step 1" in output  # though the store still knows this identity
    assert not list((toy.home / "store/runs").rglob("step-*"))


def test_killed_train_continues_to_the_same_bits(toy):
    before = toy.adapter_sha256()
    with toy.start("dvc", "repro", "-f", "-s", "train") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "step 2/6" in line:
                break
        # only DVC dies: the kernel passes it on to the stage, or an orphan would train on
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    assert "step 6/6" not in rest, "the test was too slow to interrupt the run"
    assert "stopped, can resume" in rest, rest
    deadline = time.monotonic() + 30
    while not list((toy.home / "store/runs").rglob("step-*/manifest.json")):
        assert time.monotonic() < deadline, "no checkpoint after the kill"
        time.sleep(0.1)
    output = toy.run("dvc", "repro", "-f", "-s", "train")
    assert "resuming after step" in output
    assert toy.adapter_sha256() == before


@pytest.mark.proof
def test_a_dvc_killed_between_the_end_of_train_and_its_record_trains_once(toy):
    results = toy.home / "store/runs"
    toy.run("hashtune", "compose", "experiment=toy", "optim.lr=0.02")
    known = set(results.glob("*/result/manifest.json"))
    with toy.start("dvc", "repro", "-s", "train") as process:
        while process.poll() is None and set(results.glob("*/result/manifest.json")) == known:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "the test was too slow to kill DVC"
    assert not list(results.glob("*/step-*"))
    output = toy.run("dvc", "repro", "-s", "train")
    assert "took the result of the run that ended here before DVC could record it" in output
    assert "step 1/6" not in output
    taken = toy.adapter_sha256()
    output = toy.run("dvc", "repro", "-f", "-s", "train")  # recorded now: a forced run trains
    assert "starting at step 1" in output
    assert toy.adapter_sha256() == taken
    output = toy.run("dvc", "repro", "-f", "-s", "train")  # with the bytes that dvc.lock has
    assert "starting at step 1" in output


@pytest.mark.proof
def test_a_checkpoint_of_another_identity_is_not_used(toy):
    """Planted: resume state keyed by less than everything would mix two trainings."""
    before = toy.adapter_sha256()
    runs = toy.home / "store/runs"
    shutil.rmtree(runs)
    with toy.start("python", "-m", "hashtune.stages.train", env={"PYTHONPATH": "src"}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "step 2/6" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 75
    (identity,) = (path.name for path in runs.iterdir())
    toy.run("hashtune", "compose", "experiment=toy", "optim.lr=0.01")
    output = toy.run("dvc", "repro", "-f", "-s", "train")
    assert "starting at step 1" in output
    assert toy.adapter_sha256() != before
    other = next(path for path in runs.iterdir() if path.name != identity)
    shutil.rmtree(other)
    (runs / identity).rename(other)  # the foreign state under the new identity's name
    refused = toy.run("dvc", "repro", "-f", "-s", "train", code=255)
    assert "foreign-checkpoint" in refused
    shutil.rmtree(other)
