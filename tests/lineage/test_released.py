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


def report(folder, adapter_sha256, verdict=None, judged=None):
    """What train reports, and the entry that release wrote of the `judged` adapter; the root."""
    root = folder.parents[2]
    (root / "reports").mkdir()
    text = json.dumps({"adapter_sha256": adapter_sha256})
    (root / "reports/train.json").write_text(text, encoding="utf-8")
    if verdict:
        (root / "build/release").mkdir()
        entry = {"verdict": verdict, "adapter": {f"a/{WEIGHTS}": judged}}
        (root / "build/release/entry.json").write_text(json.dumps(entry), encoding="utf-8")
    return root


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
    ("verdict", "judged", "expected"),
    [
        ("pass", W, []),
        ("fail", W, ["rejected"]),
        ("not enough evidence", W, ["rejected"]),
        ("fail", "0" * 64, []),  # that was another adapter
        (None, None, []),  # nobody has judged it yet
    ],
)
def test_an_adapter_that_was_judged(folder, verdict, judged, expected):
    root = report(folder, W, verdict, judged)
    assert [finding.rule for finding in untrusted(folder, root)] == expected
    assert untrusted(folder, root, unreleased=True) == []


def test_a_copy_of_a_rejected_adapter_is_refused_too(folder, tmp_path):
    root = report(folder, W, "fail", W)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / WEIGHTS).write_text("w", encoding="utf-8")
    assert rules(untrusted(copy, root)) == [("rejected", "copy")]


@pytest.mark.parametrize("unreleased", [False, True])
def test_weights_that_train_did_not_write(folder, unreleased):
    root = report(folder, "0" * 64)
    assert rules(untrusted(folder, root, unreleased=unreleased)) == [("tampered", WEIGHTS)]


def test_an_adapter_from_elsewhere_is_let_pass(folder, tmp_path):
    root = report(folder, "0" * 64, "fail", "0" * 64)
    other = tmp_path / "other"
    other.mkdir()
    (other / WEIGHTS).write_text("w", encoding="utf-8")
    assert untrusted(other, root) == []
