"""Every state that doctor knows, made by hand in a small repository, with what heals it."""

import json
import os
import shutil
import subprocess

import pytest

from hashtune.lineage import states

LOCK = """schema: '2.0'
stages:
  one:
    cmd: echo
    deps:
    - path: a
      md5: 0cc175b9c0f1b6a831c399e269772661
    outs:
    - path: b
      md5: 92eb5ffee6ae2fec3ad71c777531578f
  two:
    cmd: echo
    deps:
    - path: b
      md5: 92eb5ffee6ae2fec3ad71c777531578f
    outs:
    - path: c
      md5: 4a8a08f09d37b73795649038408b5f33
"""
HEAL = "git checkout dvc.lock && dvc repro"


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "project"
    (folder / "conf").mkdir(parents=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[hydra]\n    enabled = true\n    plugins_path = src\n")
    (folder / "dvc.yaml").write_text("stages: {one: {cmd: echo}, two: {cmd: echo}}\n")
    (folder / "dvc.lock").write_text(LOCK)
    (folder / "params.yaml").write_text("seed: 1\n")
    run(folder, "init", "-q", "-b", "main")
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "first")
    return folder


def run(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def fixes(check, folder):
    return [finding.fix for finding in check(folder)]


CHECKS = (
    *(states.git_locks, states.conflicts, states.detached_head, states.cut_lock),
    states.unverified_remotes,
    *(states.composition_off, states.stray_params, states.untracked, states.unfinished),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_fresh_commit_needs_no_healing(repo, check):
    assert fixes(check, repo) == []


HASH = LOCK.index("4a8a")


@pytest.mark.parametrize("end", [0, 30, LOCK.index("  two:"), HASH, HASH + 8, HASH - 20])
def test_a_dvc_lock_that_was_cut_anywhere(repo, end):
    (repo / "dvc.lock").write_text(LOCK[:end])
    assert fixes(states.cut_lock, repo) == [HEAL]


def test_a_lock_that_a_run_changed_and_a_kill_cut_within_its_last_stage(repo):
    """No prefix of the committed one; whole but for the outs that dvc.yaml names."""
    (repo / "dvc.yaml").write_text(
        "stages: {one: {cmd: echo, outs: [b]}, two: {cmd: echo, outs: [c: {push: false}]}}\n"
    )
    changed = LOCK.replace("0cc175b9", "1cc175b9")
    (repo / "dvc.lock").write_text(changed)
    assert fixes(states.cut_lock, repo) == []
    lines = changed.splitlines(keepends=True)
    for end in range(1, len(lines) - 1):  # the last line holds the last hash
        (repo / "dvc.lock").write_text("".join(lines[:end]))
        assert fixes(states.cut_lock, repo) == [HEAL], end


def test_a_dvc_lock_that_is_gone(repo):
    (repo / "dvc.lock").unlink()
    assert fixes(states.cut_lock, repo) == ["git checkout dvc.lock"]


def test_a_dvc_lock_that_never_was(repo):
    run(repo, "rm", "-q", "dvc.lock")
    assert fixes(states.cut_lock, repo) == []


def test_a_stage_that_was_taken_out_of_the_pipeline_is_not_missed(repo):
    (repo / "dvc.yaml").write_text("stages: {one: {cmd: echo}}\n")
    (repo / "dvc.lock").write_text(LOCK[: LOCK.index("  two:")])
    assert fixes(states.cut_lock, repo) == []


def test_a_detached_head_names_the_branch_it_was_on(repo):
    run(repo, "checkout", "-q", "-b", "mine")
    run(repo, "checkout", "-q", "--detach")
    assert fixes(states.detached_head, repo) == ["git checkout mine"]
    run(repo, "branch", "-D", "mine")
    assert fixes(states.detached_head, repo) == ["git checkout main"]


def test_locks_of_a_killed_git(repo):
    (repo / ".git/index.lock").touch()
    assert fixes(states.git_locks, repo) == [f"rm {repo / '.git/index.lock'}"]


def test_merge_markers(repo):
    (repo / "dvc.lock").write_text(f"<<<<<<< HEAD\n{LOCK}=======\n>>>>>>> other\n")
    heal = "git checkout --ours dvc.lock && hashtune compose && dvc repro --pull --allow-missing"
    assert fixes(states.conflicts, repo) == [heal]
    assert fixes(states.cut_lock, repo) == []  # one state, one cure


def test_a_config_that_does_not_compose(repo):
    (repo / ".dvc/config").write_text("[core]\n    analytics = false\n")
    heal = ["dvc config hydra.enabled true", "dvc config hydra.plugins_path src"]
    assert fixes(states.composition_off, repo) == heal


def test_untracked_and_stray_files(repo):
    (repo / "conf/new.yaml").touch()
    (repo / "conf/params.yaml").touch()
    assert fixes(states.untracked, repo) == ["git add -N conf/new.yaml conf/params.yaml"]
    assert fixes(states.stray_params, repo) == ["rm conf/params.yaml"]


def test_a_name_that_git_would_quote_is_told_as_it_is(repo):
    (repo / "conf/ü 1.yaml").touch()
    (finding,) = states.untracked(repo)
    assert (finding.file, finding.fix) == ("conf/ü 1.yaml", "git add -N 'conf/ü 1.yaml'")


def test_what_a_killed_stage_left(repo):
    (repo / "build/.pack.abc.tmp").mkdir(parents=True)
    assert fixes(states.unfinished, repo) == ["rm -r build/.pack.abc.tmp"]


def test_a_package_in_another_version(repo):
    (repo / "requirements.lock").write_text("numpy==0.1\n")
    (finding,) = states.other_environment(repo)
    assert "the lock pins 0.1" in finding.message
    assert finding.fix == "pip install -r requirements.lock"


def test_no_git_at_all_is_no_state(repo):
    shutil.rmtree(repo / ".git")
    assert [fixes(check, repo) for check in CHECKS] == [[]] * len(CHECKS)


def test_a_remote_that_does_not_verify(repo):
    with (repo / ".dvc/config").open("a") as config:
        config.write("['remote \"shared\"']\n    url = webdav://host/%41\n")
    assert fixes(states.unverified_remotes, repo) == ["dvc remote modify shared verify true"]
    (repo / ".dvc/config.local").write_text("['remote \"shared\"']\n    verify = true\n")
    assert fixes(states.unverified_remotes, repo) == []


def test_dvc_at_work_is_known_by_its_lock(repo):
    """A process that is gone holds nothing; this one does."""
    (repo / ".dvc/tmp").mkdir()
    lock = repo / ".dvc/tmp/rwlock"
    lock.write_text(json.dumps({"a": {"write": {"pid": 2**22 + 1}}, "b": {"read": []}}))
    assert states.at_work(repo) == []
    lock.write_text(json.dumps({"a": {"read": [{"pid": os.getpid()}]}}))
    assert states.at_work(repo) == [os.getpid()]
    lock.write_text("{")
    assert states.at_work(repo) == []
