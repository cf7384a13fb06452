"""`hashtune verify`: a commit that can be rebuilt, and five that cannot, each with its cause."""

import json
import signal

import pytest

from hashtune import writers
from hashtune.training import checkpoint


def verify(toy, *arguments, code):
    toy.run("hashtune", "verify", *arguments, code=code)
    return json.loads((toy.path / "reports/verify.json").read_text())


def commit(toy):
    toy.git("commit", "-q", "-a", "-m", "planted")


def test_the_first_steps_of_an_honest_commit_are_identical(toy):
    before = toy.git("rev-parse", "HEAD").strip()
    report = verify(toy, "--steps", "3", code=0)
    assert report["verdict"] == "identical"
    assert report["commit"] == before
    assert report["entry_sha256"] == toy.report("release")["entry_sha256"]
    assert report["training"] == {"began": "starting at step 1", "steps": 3, "of": 6}
    verdicts = {stage["stage"]: stage["verdict"] for stage in report["stages"]}
    assert verdicts["plan"] == "identical"
    assert verdicts["train"] == "compared up to step 3"
    assert verdicts["release"] == "not run"


def test_one_byte_of_data(toy):
    toy.edit("data/triage/train.jsonl", "invoice", "Invoice")
    commit(toy)
    report = verify(toy, code=1)
    assert report["executed"] == ["code"]
    assert report["first_difference"] == {"stage": "spec"}
    assert report["cause"]["kind"] == "data"
    assert "data/triage/train.jsonl has sha256" in report["cause"]["words"]


def test_one_changed_dependency_version(toy):
    toy.edit("requirements.lock", "\ntorch==2.13.0", "\ntorch==2.12.0")
    commit(toy)
    report = verify(toy, code=1)
    assert report["executed"] == []
    assert report["cause"]["kind"] == "environment"
    assert "torch 2.13.0" in report["cause"]["words"]


def test_one_thread_more(toy):
    toy.run("hashtune", "compose", "experiment=toy", "determinism.threads=2")
    commit(toy)
    report = verify(toy, code=1)
    assert report["first_difference"]["stage"] == "spec"
    assert report["cause"]["kind"] == "threads"
    assert "determinism.threads was 1, params.yaml says 2" in report["cause"]["words"]


def test_a_hidden_read_of_the_environment(toy):
    toy.edit(
        "src/hashtune/stages/prepare.py",
        'if __name__ == "__main__":',
        'def _salt():\n    import os\n    text = os.environ.get("SALT", "")\n'
        "    writers.write_jsonl(OUT / 'ledger.jsonl', [{'salt': text}])\n\n\n"
        'if __name__ == "__main__":',
    )
    toy.edit(
        "src/hashtune/stages/prepare.py",
        '    frame.write_report("prepare"',
        '    _salt()\n    frame.write_report("prepare"',
    )
    toy.run("dvc", "repro", "prepare", env={"SALT": "x"})
    commit(toy)
    report = verify(toy, code=1)
    assert report["first_difference"]["stage"] == "prepare"
    assert report["first_difference"]["output"] == "build/prepare/ledger.jsonl"
    assert report["first_difference"]["difference"].startswith("ledger.jsonl: line 1")
    assert report["cause"]["kind"] == "undeclared input"
    assert "SALT (hashtune.stages.prepare)" in report["cause"]["words"]


def test_a_code_change_between_kill_and_resume(toy):
    """Planted by hand: the store refuses to resume another code's state."""
    runs = toy.home / "store/runs"
    with toy.start("dvc", "repro", "-f", "-s", "train") as process:
        for line in process.stdout:
            if "step 2/6" in line:
                process.send_signal(signal.SIGTERM)
    before = {path.name for path in runs.iterdir()}
    (old,) = (path for path in runs.iterdir() if list(path.glob("step-*")))
    toy.edit("src/hashtune/training/schedules.py", "math.pi * done)) / 2", "math.pi * done)) / 3")
    with toy.start("dvc", "repro", "train") as process:
        for line in process.stdout:
            if "starting at step 1" in line:
                process.send_signal(signal.SIGTERM)
    (new,) = (path for path in runs.iterdir() if path.name not in before)
    writers_state(old, new)
    assert "resuming after step 2" in toy.run("dvc", "repro", "train")
    commit(toy)
    report = verify(toy, code=1)
    assert report["first_difference"]["stage"] == "train"
    assert report["first_difference"]["step"] in (1, 2)
    assert report["cause"]["kind"] == "mixed run"
    assert "resumed at step 3" in report["cause"]["words"]


def writers_state(old, new):
    """The checkpoint of one run as one of the other's."""
    (folder,) = old.glob("step-*")
    state = writers.read_json(folder / "state.json") | {"identity": new.name}
    writers.write_json(folder / "state.json", state)
    manifest = {
        name: {
            "size": (folder / name).stat().st_size,
            "sha256": writers.sha256_file(folder / name),
        }
        for name in checkpoint.FILES
    }
    writers.write_json(folder / "manifest.json", manifest)
    for path in new.glob("step-*"):
        path.rename(path.parent / f".gone-{path.name}")
    folder.rename(new / folder.name)


def test_a_resume_that_forgets_the_optimizer_is_seen(toy):
    toy.edit(
        "src/hashtune/training/loop.py", "restore_optimizer(optimizer", "(lambda *_: 0)(optimizer"
    )
    commit(toy)
    output = toy.run("hashtune", "verify", "--resume", "--steps", "6", "--kill", "3", code=1)
    assert "6 steps, killed after step 3, then resuming after step 2" in output
    assert "first step that differs: 4" in output
    assert "verdict: differs" in output


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("v9.9.9",), "no-revision"),
        (("--steps", "0"), "bad-number"),
        (("--kill", "2"), "contradiction"),
    ],
)
def test_bad_input_is_refused(toy, arguments, rule):
    assert f"[{rule}]" in toy.run("hashtune", "verify", *arguments, code=2)
