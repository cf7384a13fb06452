"""Reasons against a registration: Git's, in a small repository with and without a remote; those of
the artifact, whole and changed; of the DVC remote; of the names that were asked for."""

import json
import subprocess

import pytest

from hashtune.lineage.registration import (
    Wanted,
    artifact_findings,
    data_findings,
    git_findings,
    wanted_findings,
)
from hashtune.lineage.released import seal
from hashtune.writers import sha256_file


def run(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path):
    """One commit, pushed to a bare repository beside it."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "file").touch()
    run(folder, "init", "-q", "-b", "main")
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "one")
    run(tmp_path, "init", "-q", "--bare", "origin.git")
    run(folder, "remote", "add", "origin", str(tmp_path / "origin.git"))
    run(folder, "push", "-q", "origin", "main")
    return folder


def told(folder):
    return [(finding.rule, finding.message) for finding in git_findings(folder)]


def test_a_clean_and_pushed_commit_may_be_registered(repo):
    assert told(repo) == []


def test_every_reason_is_told_at_once(repo):
    run(repo, "commit", "-q", "--allow-empty", "-m", "two")
    (repo / "ü new").touch()
    dirty = ("not-clean", "1 files are not committed, the first 'ü new'")
    assert told(repo) == [dirty, ("not-pushed", "no branch of a remote holds HEAD")]


def test_a_remote_that_is_gone(repo, tmp_path):
    (tmp_path / "origin.git").rename(tmp_path / "elsewhere")
    ((rule, message),) = told(repo)
    assert rule == "not-pushed"
    assert message.startswith("`git fetch --quiet` ended with 128: fatal: ")


def test_no_repository_is_a_reason_beside_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert told(tmp_path) == [("no-repository", "is in no Git repository")]


@pytest.fixture
def released(tmp_path):
    """A project as release left it after a pass."""
    folder = tmp_path / "build/release/adapter"
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_text("w", encoding="utf-8")
    entry = {"name": "triage", "run": "r", "verdict": "pass", "base": {"source": {}}}
    file = tmp_path / "build/release/entry.json"
    file.write_text(json.dumps(entry), encoding="utf-8")
    seal(folder, entry, sha256_file(file))
    report = {"name": "triage", "verdict": "pass", "entry_sha256": sha256_file(file)}
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/release.json").write_text(json.dumps(report), encoding="utf-8")
    text = "artifacts:\n  triage: {path: build/release/adapter}\n"
    (tmp_path / "dvc.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def reasons(findings):
    return [(f.rule, (f.file or f.field or "").rpartition("/")[2], f.message) for f in findings]


def test_what_release_wrote_may_be_registered(released):
    assert reasons(artifact_findings(released)) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("adapter_model.safetensors", "v", "is not the released file"),
        ("adapter_model.safetensors", None, "is not there"),
        ("more.py", "x", "was not released"),
        ("release.json", "{", "is damaged"),
        ("release.json", None, "is not there"),  # planted: without a seal nothing was compared
    ],
)
def test_a_changed_adapter_is_not_registered(released, name, text, found):
    file = released / "build/release/adapter" / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    assert reasons(artifact_findings(released)) == [("tampered", name, found)]


def test_a_changed_entry_and_a_seal_of_another_one(released):
    file = released / "build/release/entry.json"
    file.write_text("{}", encoding="utf-8")
    message = "is not the entry that release wrote"
    assert reasons(artifact_findings(released)) == [("tampered", "entry.json", message)]
    report = released / "reports/release.json"
    made = json.loads(report.read_text(encoding="utf-8")) | {"entry_sha256": sha256_file(file)}
    report.write_text(json.dumps(made), encoding="utf-8")
    found = ("tampered", "release.json", "is the seal of another entry")
    assert reasons(artifact_findings(released)) == [found]


def test_a_rejected_artifact_and_a_name_that_is_no_artifact(released):
    for file in (released / "build/release/adapter").iterdir():
        file.unlink()
    (released / "build/release/adapter").rmdir()
    (released / "dvc.yaml").write_text("artifacts: {other: {path: x}}\n", encoding="utf-8")
    found = reasons(artifact_findings(released))
    assert [(rule, place) for rule, place, _ in found] == [
        ("rejected", "adapter"),
        ("artifact-name", "release.name"),
    ]


def test_without_an_entry_there_is_nothing_to_register(tmp_path):
    assert [finding.rule for finding in artifact_findings(tmp_path)] == ["no-entry"]


@pytest.mark.parametrize(
    ("wanted", "rules"),
    [
        (Wanted("v1.2.0", None, "prod"), []),
        (Wanted(None, "minor", None), []),
        (Wanted("1.2.0", None, None), ["version"]),
        (Wanted("v1.2.0", "minor", "--push"), ["stage", "contradiction"]),
    ],
)
def test_names_that_gto_would_read_otherwise(wanted, rules):
    assert [finding.rule for finding in wanted_findings(wanted)] == rules


def test_no_dvc_remote_is_a_reason(tmp_path):
    assert [finding.rule for finding in data_findings(tmp_path)] == ["no-remote"]
