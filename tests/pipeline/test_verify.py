"""`hashtune verify`: commits that cannot be rebuilt, each with its cause.

What runs stages takes minutes: bench/verify_faults.py (make prove) has an honest commit, a thread
more, a hidden read, a mixed run and --resume.
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
