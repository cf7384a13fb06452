"""Which commits a review compares, in a repository of three commits on two branches."""

import subprocess

import pytest

from hashtune.errors import InputError
from hashtune.review.revisions import export, read_span


def git(root, *arguments):
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", root, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """main: one, two; side, from one: three."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for branch, text in (("main", "one"), ("main", "two"), ("side", "three")):
        if branch == "side":
            git(root, "checkout", "-q", "-b", "side", "HEAD~1")
        (root / "file").write_text(text, encoding="utf-8")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", text)
    return root


@pytest.mark.parametrize(
    ("text", "base", "head"),
    [
        ("main..side", "main", "side"),
        ("main...side", "main~1", "side"),  # from where they parted
        ("main", "main", "side"),  # HEAD is side
        ("..main", "side", "main"),
        ("main..", "main", "side"),
    ],
)
def test_spans(repository, text, base, head):
    span = read_span(repository, text)
    assert (span.base, span.head) == tuple(git(repository, "rev-parse", n) for n in (base, head))


@pytest.mark.parametrize(
    ("text", "diverged"),
    [
        ("main..side", True),
        ("main...side", False),
        ("main~1..main", False),
        ("main..main", False),
        ("main..main~1", True),  # back in time
    ],
)
def test_a_base_that_is_no_ancestor_is_known(repository, text, diverged):
    assert read_span(repository, text).diverged is diverged


def test_both_wrong_sides_are_told(repository):
    with pytest.raises(InputError) as error:
        read_span(repository, "nowhere..--output=x")
    assert [f.rule for f in error.value.findings] == ["no-revision", "no-revision"]


def test_histories_without_a_common_ancestor(repository):
    git(repository, "checkout", "-q", "--orphan", "alone")
    git(repository, "commit", "-q", "-m", "four")
    with pytest.raises(InputError, match="no common ancestor"):
        read_span(repository, "main...alone")


def test_an_export_holds_files_and_no_links(repository, tmp_path):
    (repository / "link").symlink_to("/")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "link")
    folder = export(repository, git(repository, "rev-parse", "HEAD"), tmp_path / "out")
    assert [file.name for file in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text(encoding="utf-8") == "three"


@pytest.mark.parametrize("text", ["", "..", "..."])
def test_no_revision_at_all_is_refused(repository, text):
    with pytest.raises(InputError, match="names no revision"):
        read_span(repository, text)


@pytest.mark.parametrize("commit", ["0" * 40, "--output=x", "nowhere"])
def test_an_unknown_commit_is_no_export(repository, tmp_path, commit):
    with pytest.raises(InputError, match=r"no revision of this repository \[no-revision\]"):
        export(repository, commit, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_side_that_excludes_is_no_commit(repository):
    """Git resolves ^main to a hash with ^ before it."""
    with pytest.raises(InputError, match=r"'\^main' is no revision"):
        read_span(repository, "^main..side")
