"""Git by hand in small repositories: what it answers, and every way in which it fails."""

import ast
import os
import subprocess

import pytest

from hashtune.errors import InputError
from hashtune.lineage import git


def run(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make(folder, text):
    """A repository with one commit on main: `file` holds the text."""
    (folder / "below").mkdir(parents=True)
    (folder / "file").write_text(text, encoding="utf-8")
    (folder / "below/deep").write_text("deep", encoding="utf-8")
    run(folder, "init", "-q", "-b", "main")
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", text.strip())
    return folder


@pytest.fixture
def repo(tmp_path):
    return make(tmp_path / "repo", "one\n")


def rules(call, *arguments, **named):
    with pytest.raises(InputError) as error:
        call(*arguments, **named)
    return [finding.rule for finding in error.value.findings]


def test_revisions_are_resolved_to_full_hashes(repo):
    head = run(repo, "rev-parse", "HEAD")
    run(repo, "tag", "-a", "demo@v1.0.0", "-m", "annotated")
    for name in ("HEAD", "main", head[:8], "demo@v1.0.0", "HEAD^0"):
        assert git.resolve(repo, name) == head, name


def test_a_branch_that_looks_like_an_option_is_a_revision(repo):
    """`git branch` refuses such a name, a fetch may bring it."""
    run(repo, "update-ref", "refs/heads/--symbolic", "HEAD")
    assert git.resolve(repo, "--symbolic") == run(repo, "rev-parse", "HEAD")


NONE = (
    *("nowhere", "", "two words", "0" * 40, "HEAD~7", "HEAD@{99}", "main@{upstream}"),
    *("HEAD:file", "HEAD^{tree}", "^HEAD", "HEAD..main", "HEAD\nHEAD"),
    *("-h", "--all", "--output=stolen", "--git-dir"),  # planted: they look like options
)


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_revision(repo, name):
    assert git.resolve(repo, name) is None
    assert rules(git.known, repo, name, field="REV", fix="x") == ["no-revision"]
    assert rules(git.read, repo, name, "file") == ["no-revision"]
    assert not (repo / "stolen").exists()


def test_files_of_a_revision(repo):
    (repo / "file").write_text("changed", encoding="utf-8")
    (repo / "new").touch()
    assert git.read(repo, "HEAD", "file") == "one\n"
    assert git.read(repo, "main", "below/deep") == "deep"
    assert git.read(repo / "below", "main", "deep") == "deep"  # from the root that is given
    for absent in ("new", "below", "file/x", "a b missing"):
        assert git.read(repo, "HEAD", absent) is None, absent


def test_a_file_that_is_no_text_is_refused(repo):
    (repo / "file").write_bytes(b"\xff")
    run(repo, "commit", "-q", "-a", "-m", "bytes")
    assert rules(git.read, repo, "HEAD", "file") == ["not-utf8"]


def test_a_damaged_object_is_no_absent_file(repo):
    name = run(repo, "rev-parse", "HEAD:file")
    file = repo / ".git/objects" / name[:2] / name[2:]
    file.chmod(0o600)
    file.write_bytes(b"damaged")
    assert rules(git.read, repo, "HEAD", "file") == ["tool-failed"]


def test_no_repository(tmp_path, monkeypatch):
    """Planted: a folder in no repository, and one that does not exist."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    asked = [
        lambda root: git.output(root, "status"),
        lambda root: git.found(root, "symbolic-ref", "--quiet", "HEAD"),
        lambda root: git.resolve(root, "HEAD"),
        lambda root: git.read(root, "HEAD", "file"),
        lambda root: git.changes(root, untracked=True),
        *(git.listed, git.pushed),
    ]
    for call in asked:
        with pytest.raises(InputError, match=r"is in no Git repository \[no-repository\]"):
            call(tmp_path)
        with pytest.raises(InputError, match=r"cannot change to .* \[tool-failed\]"):
            call(tmp_path / "gone")


def test_no_git_at_all(repo, monkeypatch):
    monkeypatch.setenv("PATH", str(repo / "below"))
    assert rules(git.output, repo, "status") == ["no-git"]


def test_a_command_that_fails_is_told_with_gits_words(repo):
    with pytest.raises(InputError, match=r"`git merge-base main nope` ended with 128: .*nope"):
        git.found(repo, "merge-base", "main", "nope")


def test_one_is_gits_no(repo):
    assert git.found(repo, "symbolic-ref", "--quiet", "HEAD") == "refs/heads/main"
    run(repo, "checkout", "-q", "--detach")
    assert git.found(repo, "symbolic-ref", "--quiet", "HEAD") is None
    assert rules(git.output, repo, "symbolic-ref", "--quiet", "HEAD") == ["tool-failed"]


def test_changes_and_lists_name_files_as_they_are(repo):
    assert git.changes(repo, untracked=True) == []
    odd = 'ü "x" y'  # Git would quote it
    (repo / "file").write_text("two", encoding="utf-8")
    (repo / odd).touch()
    run(repo, "config", "status.showUntrackedFiles", "no")
    changed, new = git.Change(" M", "file"), git.Change("??", odd)
    assert git.changes(repo, untracked=True) == [changed, new]
    assert git.changes(repo, untracked=False) == [changed]
    assert git.changes(repo, "below", untracked=True) == []
    assert git.listed(repo) == ["below/deep", "file"]
    assert git.listed(repo, "--others") == [odd]
    run(repo, "mv", "-f", "file", "moved")
    moved = [git.Change("D ", "file"), git.Change("AM", "moved")]
    assert git.changes(repo, untracked=False) == moved


def test_pushed_is_what_a_branch_of_a_remote_holds(repo, tmp_path):
    assert not git.pushed(repo)
    run(tmp_path, "init", "-q", "--bare", "origin")
    run(repo, "remote", "add", "origin", str(tmp_path / "origin"))
    run(repo, "push", "-q", "origin", "main")
    assert git.pushed(repo)
    run(repo, "commit", "-q", "--allow-empty", "-m", "mine")
    assert not git.pushed(repo)
    assert [name for name, _ in git.refs(repo, "refs/remotes")] == ["refs/remotes/origin/main"]


def test_a_hooks_repository_and_index_are_not_ours(repo, tmp_path, monkeypatch):
    """Planted: what Git exports to a hook of another repository."""
    other = make(tmp_path / "other", "other\n")
    head = run(repo, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    monkeypatch.setenv("GIT_PREFIX", "below/")
    assert git.resolve(repo, "HEAD") == head
    assert git.read(repo, "HEAD", "file") == "one\n"
    assert git.changes(repo, untracked=True) == []
    assert git.output(repo, "rev-parse", "--show-toplevel") == str(repo.resolve())


def test_every_variable_that_git_calls_a_repositorys_own_is_taken_out(repo):
    local = git.output(repo, "rev-parse", "--local-env-vars").split()
    assert "GIT_DIR" in local
    left = git.environment(dict.fromkeys(local, "x"))
    assert [n for n in left if n in local and not n.startswith("GIT_CONFIG_")] == []


def test_settings_ways_to_a_remote_and_the_rest_stay():
    given = {
        **{"PATH": "/bin", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "GITHUB_TOKEN": "t"},
        **{"GIT_SSH_COMMAND": "ssh -v", "GIT_CONFIG_COUNT": "1", "GIT_LITERAL_PATHSPECS": "1"},
        **{"GIT_COMMITTER_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com"},  # GTO makes tags
    }
    wanted = {**given, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    del wanted["GIT_LITERAL_PATHSPECS"]
    assert git.environment(given) == wanted


def calls_of_git(file):
    """Lines with a list or tuple that begins with "git": a command."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text if '"git"' in text else "")
    lists = [n for n in ast.walk(tree) if isinstance(n, ast.List | ast.Tuple) and n.elts]
    first = [(n.lineno, n.elts[0]) for n in lists]
    return [line for line, e in first if isinstance(e, ast.Constant) and e.value == "git"]


def test_git_is_run_in_one_place(root, tmp_path):
    """But for composition, which lies below lineage and may use the standard library alone."""
    src = root / "src"
    callers = [f.relative_to(src).as_posix() for f in src.rglob("*.py") if calls_of_git(f)]
    below = ["hashtune/spec/drift.py", "hydra_plugins/hashtune_conf/__init__.py"]
    assert sorted(callers) == ["hashtune/lineage/git.py", *below]
    planted = tmp_path / "planted.py"
    planted.write_text('subprocess.run(["git", "status"])\n', encoding="utf-8")
    assert calls_of_git(planted) == [1]


def test_a_reader_takes_no_lock(repo):
    """Another Git at work holds index.lock; it is neither waited for nor taken."""
    (repo / ".git/index.lock").touch()
    os.utime(repo / "file", (1, 1))  # status would write the new time into the index
    assert git.changes(repo, untracked=True) == []
