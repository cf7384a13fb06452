"""Git's reasons against a registration, in a small repository with and without a remote."""

import subprocess

import pytest

from hashtune.lineage.registration import git_findings


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
