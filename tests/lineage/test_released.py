"""A released folder and its seal: whole, changed on the way, never passed."""

import json

import pytest

from hashtune.lineage.released import SEAL, seal, seal_findings, untrusted

WEIGHTS = "adapter_model.safetensors"
W = "50e721e49c013f00c62cf59f2163542a9d8df02464efeb615d31051b0fddc326"  # sha256 of "w"
ENTRY = {"name": "triage", "run": "default", "verdict": "pass", "base": {"source": {"repo": "a"}}}


def rules(findings):
    return [(finding.rule, finding.file.rpartition("/")[2]) for finding in findings]


@pytest.fixture
def folder(tmp_path):
    """build/train/adapter of a project, sealed, with the reports of train and gate."""
    found = tmp_path / "build/train/adapter"
    found.mkdir(parents=True)
    (found / WEIGHTS).write_text("w", encoding="utf-8")
    (found / "config").write_text("c", encoding="utf-8")
    return found


def report(folder, name, value):
    reports = folder.parents[2] / "reports"
    reports.mkdir(exist_ok=True)
    (reports / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return reports


def test_a_whole_folder(folder):
    seal(folder, ENTRY, "e" * 64)
    sealed = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    assert sealed["files"][WEIGHTS] == W
    assert list(sealed["files"]) == [WEIGHTS, "config"]
    assert seal_findings(folder) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (WEIGHTS, "v", "is not the released file"),
        (WEIGHTS, None, "is not there"),
        ("more.bin", "x", "was not released"),
        (SEAL, "{", "is damaged"),
        (SEAL, "[]", "is damaged"),
    ],
)
def test_what_was_changed_on_the_way(folder, name, text, message):
    seal(folder, ENTRY, "e" * 64)
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    [finding] = seal_findings(folder)
    assert (finding.rule, finding.message) == ("tampered", message)
    assert untrusted(folder, folder, unreleased=True) == [finding]


def test_a_sealed_rejection_is_one(folder):
    seal(folder, {**ENTRY, "verdict": "fail"}, "e" * 64)
    assert rules(untrusted(folder, folder)) == [("rejected", SEAL)]
    assert untrusted(folder, folder, unreleased=True) == []


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [("pass", []), ("fail", ["rejected"]), ("not enough evidence", ["rejected"])],
)
def test_the_adapter_of_train_is_used_after_a_pass(folder, verdict, expected):
    report(folder, "gate", {"verdict": verdict})
    reports = report(folder, "train", {"adapter_sha256": W})
    found = untrusted(folder, reports)
    assert [finding.rule for finding in found] == expected
    assert untrusted(folder, reports, unreleased=True) == []


def test_before_the_gate_ran_nothing_is_passed(folder):
    reports = report(folder, "train", {"adapter_sha256": W})
    [finding] = untrusted(folder, reports)
    assert "verdict: none yet" in finding.message


def test_weights_that_train_did_not_write(folder):
    reports = report(folder, "train", {"adapter_sha256": "0" * 64})
    assert rules(untrusted(folder, reports)) == [("tampered", WEIGHTS)]
    assert rules(untrusted(folder, reports, unreleased=True)) == [("tampered", WEIGHTS)]


def test_an_adapter_from_elsewhere_is_let_pass(folder, tmp_path):
    reports = report(folder, "train", {"adapter_sha256": "0" * 64})
    other = tmp_path / "other"
    other.mkdir()
    (other / WEIGHTS).write_text("w", encoding="utf-8")
    assert untrusted(other, reports) == []
