"""`hashtune verify`: commits that cannot be rebuilt, each with its cause.

An honest commit, a mixed run and --resume take minutes: bench/verify_faults.py (make prove).
"""

import json

import pytest


def verify(toy, *arguments, code):
    toy.run("hashtune", "verify", *arguments, code=code)
    return json.loads((toy.path / "reports/verify.json").read_text())


def commit(toy):
    toy.git("commit", "-q", "-a", "-m", "planted")


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


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("v9.9.9",), "no-revision"),
        (("--steps", "0"), "bad-number"),
        (("--kill", "2"), "contradiction"),
        (("--resume", "--steps", "1"), "contradiction"),  # before anything is run
        (("--resume", "--steps", "5", "--kill", "5"), "contradiction"),
    ],
)
def test_bad_input_is_refused(toy, arguments, rule):
    assert f"[{rule}]" in toy.run("hashtune", "verify", *arguments, code=2)
