"""`dvc exp run`: what a change reruns, queued and temporary runs, QLoRA, comparison."""

import csv

import pytest

AFTER_TRAIN = ["evaluate", "regress", "gate", "release"]


def experiment(toy, *overrides, flags=()):
    """Run an experiment on top of the toy spec; returns DVC's output."""
    settings = [item for override in ("experiment=toy", *overrides) for item in ("-S", override)]
    return toy.run("dvc", "exp", "run", *flags, *settings)


def test_learning_rate_reruns_training_and_what_follows(toy):
    output = experiment(toy, "optim.lr=1e-4")
    assert sorted(toy.stages(output)) == sorted(["spec", "plan", "train", *AFTER_TRAIN])
    report = toy.report("spec")
    assert report["run"] == "toy,optim.lr=0.0001"
    assert report["overrides"] == {"optim.lr": 0.0001}
    composed = toy.run("hashtune", "compose", "--print", "experiment=toy", "optim.lr=1e-4")
    assert (toy.path / "params.yaml").read_text() == composed  # DVC's bytes
    shown = toy.run("dvc", "exp", "show", "--csv")
    assert "optim.lr" in shown
    differences = toy.run("dvc", "metrics", "diff")
    assert "loss_last" in differences
    toy.run("dvc", "plots", "show", "-o", "plots-page")
    assert "vega" in (toy.path / "plots-page/index.html").read_text()
    readable = toy.run("make", "-o", "setup", "-f", "Makefile", "runs", "SHELL=/bin/bash")
    assert "optim.lr" in readable


def test_price_reruns_the_plan_and_the_entry_only(toy):
    output = experiment(toy, "hardware.price_per_hour=2.5")
    assert sorted(toy.stages(output)) == ["plan", "release", "spec"]


def test_gate_margin_reruns_the_gate_and_the_entry_only(toy):
    output = experiment(toy, "eval_gate.regression_max_drop=0.9")
    assert sorted(toy.stages(output)) == ["gate", "release", "spec"]


def test_rejected_adapter_is_recorded_but_not_released(toy):
    output = experiment(toy, "eval_gate.task_min=0.99", "eval_gate.min_task_items=2")
    assert "verdict: fail" in output
    assert toy.report("release")["released"] is False
    assert not (toy.path / "build/release/adapter").exists()
    assert (toy.path / "build/release/entry.json").is_file()
    judged = toy.run("hashtune", "check", "--gate", code=1)
    assert "verdict: fail" in judged


@pytest.mark.proof
def test_queued_runs_use_the_code_they_were_queued_with(toy):
    settings = ["-S", "experiment=toy", "-S", "optim.lr=1e-4,3e-4"]
    toy.run("dvc", "exp", "run", "--queue", *settings)
    toy.edit("src/hashtune/training/summary.py", '"steps": progress.step', '"steps": 999')
    toy.run("dvc", "exp", "run", "--run-all", "-j", "1")
    shown = toy.run("dvc", "exp", "show", "--csv")
    table = [line for line in shown.splitlines() if line.count(",") > 5]
    rows = list(csv.DictReader(table))
    steps, run = (
        next(name for name in rows[0] if name.split(":")[-1] == wanted)
        for wanted in ("steps", "run")
    )
    done = {row[run]: float(row[steps]) for row in rows if "optim.lr" in row[run]}
    assert done == {"toy,optim.lr=0.0001": 6.0, "toy,optim.lr=0.0003": 6.0}


def test_qlora_composes_nf4_and_runs_in_a_temporary_folder(toy):
    output = experiment(toy, "method=qlora", "duration.max_steps=2", flags=("--temp", "-n", "q4"))
    assert "train" in toy.stages(output)
    assert "Ran experiment" in output
    params = toy.run("git", "show", "refs/exps:params.yaml", code=None)
    shown = toy.run("dvc", "exp", "show", "--csv", "--drop", "^build|^src")
    assert "nf4" in shown, params + shown
