"""The command line: exit codes, nothing changed on refusal, output a script can take."""

import json

import pytest

from hashtune.cli.main import main


@pytest.fixture
def project(tmp_path, root, monkeypatch):
    """A project without outputs."""
    import shutil
    import subprocess

    for name in ("conf", "data"):
        shutil.copytree(root / name, tmp_path / name)
    shutil.copy2(root / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_compose_then_check(project, capsys):
    assert main(["compose", "optim.lr=0.25"]) == 0
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "override: optim.lr: conf/ says 0.001, params.yaml says 0.25" in out
    assert "valid: default,optim.lr=0.25" in out


def test_a_hint_refuses_nothing(project, capsys):
    main(["compose", "optim.lr=0.25", "duration.epochs=9"])
    capsys.readouterr()
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "hint: optim.lr 0.25 is above" in out
    assert "hint: duration.epochs 9 is above 1 to 3" in out
    assert out.endswith("duration.epochs=9,optim.lr=0.25\n")


def test_hints_about_the_length_of_the_run(project, capsys):
    """Before pack max_steps is a bound; with its report and dvc.lock the steps are known."""
    import hashlib

    more = "schedule.warmup_fraction=null"
    main(["compose", "duration.max_steps=500", "schedule.warmup_steps=120", more])
    capsys.readouterr()
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "hint: schedule.warmup_steps 120 is 24% or more of at most 500 steps" in out
    assert "cuts nothing" not in out
    (project / "reports").mkdir()
    (project / "reports/pack.json").write_text('{"train": {"rows": 222}}')
    md5 = hashlib.md5((project / "reports/pack.json").read_bytes()).hexdigest()
    made = "params: {params.yaml: {data.packing: true}}"
    outs = f"outs: [{{path: reports/pack.json, md5: {md5}}}]"
    lock = f"stages: {{prepare: {{}}, tokenize: {{}}, pack: {{{made}, {outs}}}}}\n"
    (project / "dvc.lock").write_text(lock)
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "hint: schedule.warmup_steps 120 is 54% of 222 steps" in out
    assert "hint: duration.max_steps 500 cuts nothing: 1 epoch holds 222 steps" in out
    main(["compose", "schedule=wsd", "batch.grad_accum=1000", "checkpoint.keep_stable=9"])
    capsys.readouterr()
    assert main(["check"]) == 2  # one step: nothing can decay, and there is no step 9
    err = capsys.readouterr().err
    assert "override batch" not in err
    assert "no update is left to decay: it begins at 0 of 1 [schedule-length]" in err
    assert "[keep-stable]" in err
    main(["compose", "duration.max_steps=500", "schedule.warmup_steps=120", more])
    (project / "dvc.lock").write_text("stages:\n  pa")
    assert main(["check"]) == 0  # not the spec's
    assert "at most 500 steps" in capsys.readouterr().out


def test_a_schedule_that_fits_into_no_run_is_refused(project, capsys):
    wsd = ["schedule=wsd", "schedule.decay_fraction=null", "schedule.decay_start=400"]
    main(["compose", *wsd, "checkpoint.keep_stable=500"])
    assert main(["check"]) == 2
    err = capsys.readouterr().err
    assert "[schedule-length]" in err and "[keep-stable]" in err


def test_a_tracker_that_does_not_exist_is_refused_before_dvc_removes_anything(
    project, monkeypatch, capsys
):
    main(["compose"])
    capsys.readouterr()
    monkeypatch.setenv("HASHTUNE_TRACKERS", "tensorbord")
    assert main(["check"]) == 2
    said = "HASHTUNE_TRACKERS names 'tensorbord' [tracker]\n    fix: did you mean 'tensorboard'?\n"
    assert said in capsys.readouterr().err
    monkeypatch.setenv("HASHTUNE_TRACKERS", " , ")
    assert main(["check"]) == 0
    monkeypatch.setenv("HASHTUNE_TRACKERS", "x")
    file = project / "data/triage/train.jsonl"
    file.write_bytes(file.read_bytes() + b"\n")
    assert main(["check"]) == 2
    err = capsys.readouterr().err
    assert "2 findings:" in err and "[tracker]" in err and "[pin-differs]" in err


def test_check_needs_no_torch(project, root):
    """Its list of trackers is read where training has it."""
    import subprocess
    import sys

    main(["compose"])
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from hashtune.cli.main import main; sys.exit(main(['check']))"
    )
    environment = {"PYTHONPATH": str(root / "src"), "HASHTUNE_TRACKERS": "wandbb"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "1 finding:" in done.stderr and "did you mean 'wandb'?" in done.stderr


def test_a_run_without_master_weights_is_warned(project, capsys):
    main(["compose", "optim.lr=1e-4", "precision=bf16", "optim.master_weights=false"])
    capsys.readouterr()
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "warning: optim.master_weights false: an update smaller than 2^-9 (0.2 %)" in out
    assert "optim.lr 0.0001 moves no weight beyond 0.0512 in size" in out
    main(["compose", "optim.lr=1e-4", "precision=bf16"])
    capsys.readouterr()
    main(["check"])
    assert "warning" not in capsys.readouterr().out


def test_print_writes_nothing(project, capsys):
    assert main(["compose", "--print"]) == 0
    assert capsys.readouterr().out.startswith("run:\n")
    assert not (project / "params.yaml").exists()


def test_a_refused_override_leaves_params_as_they_were(project, capsys):
    main(["compose"])
    before = (project / "params.yaml").read_bytes()
    assert main(["compose", "optim.lr=fast"]) == 2
    assert main(["compose", "+optim.lrr=1"]) == 2
    assert (project / "params.yaml").read_bytes() == before
    assert "did you mean 'lr'?" in capsys.readouterr().err


def test_outside_a_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compose"]) == 2
    assert "root of a project" in capsys.readouterr().err


def test_no_verdict_no_base_no_adapter_name_their_cure(project, capsys):
    main(["compose"])
    assert main(["check", "--gate"]) == 2
    assert main(["base"]) == 2
    assert main(["chat", "hi"]) == 2
    assert capsys.readouterr().err.count("dvc repro") >= 3


def test_gate_exit_codes(project, capsys):
    import hashlib

    main(["compose"])
    (project / "reports").mkdir()
    for verdict, code in (("pass", 0), ("fail", 1), ("not enough evidence", 1)):
        text = json.dumps({"verdict": verdict, "rules": [{"name": "r", "verdict": verdict}]})
        (project / "reports/gate.json").write_text(text)
        md5 = hashlib.md5(text.encode()).hexdigest()
        lock = f"stages:\n  gate:\n    outs:\n    - path: reports/gate.json\n      md5: {md5}\n"
        (project / "dvc.lock").write_text(lock)
        assert main(["check", "--gate"]) == code
    assert "verdict: not enough evidence" in capsys.readouterr().out


def test_an_unexpected_fault_keeps_its_traceback_and_exits_70(project, monkeypatch, capsys):
    def broken(*_arguments, **_keywords):
        raise KeyError("ours")

    monkeypatch.setattr("hashtune.cli.compose.compose", broken)
    assert main(["compose"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_another_clones_command_is_refused(project, capsys):
    """Planted: a second clone, and the first one's virtual environment still active."""
    (project / "src/hashtune").mkdir(parents=True)
    assert main(["check"]) == 2
    assert "foreign-code" in capsys.readouterr().err


def test_make_runs_drops_columns_that_nobody_reads(root):
    """What holds all overrides at once, or a hash, is wider than a terminal."""
    import re

    text = (root / "Makefile").read_text(encoding="utf-8").partition("\nruns:")[2]
    (found,) = re.findall(r"--drop \\\n\s+'([^']+)'", text)
    pattern = re.compile(found.replace("$$", "$"))
    dropped = ("run.experiment", "params.yaml:run.experiment", "conf_sha256", "src")
    dropped += ("data/triage/train.jsonl", "reports/machine/tokenize.json:output_sha256")
    dropped += ("data.replay.sha256", "build/pack")
    kept = ("optim.lr", "reports/tokenize.json:train.tokens", "data.max_seq_len", "data.name")
    assert [name for name in dropped if not pattern.search(name)] == []
    assert [name for name in kept if pattern.search(name)] == []
