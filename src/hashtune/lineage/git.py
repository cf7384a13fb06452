"""Git as everything here asks it: one way to run it, one way in which it fails.

A command works in the root it is given, whatever surrounds it: inside a hook Git exports GIT_DIR
and GIT_INDEX_FILE, which would lead a command for a clone to the caller's repository and index.

Where Git's answer may be "there is none", None stands for it; every other failure is an InputError
with Git's own words. Names of files are read with NUL between them, as Git quotes them otherwise.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hashtune.errors import Finding, InputError

# the user's name, settings and ways to a remote; every other GIT_ variable names a repository, an
# index or a meaning of paths that is not ours
KEPT = re.compile(
    r"GIT_((AUTHOR|COMMITTER|CONFIG)_.+|SSH(_.+)?|ASKPASS|TERMINAL_PROMPT|(SSL|HTTP|PROXY)_.+"
    r"|ALLOW_PROTOCOL|EXEC_PATH|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM)"
)
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # SHA-1, or SHA-256 of newer repositories
BLOB = re.compile(rb"[0-9a-f]+ blob \d+")
NO = 1  # what Git ends with where its answer is "there is none"
LOG_FIX = "`git log` and `git tag` name them"
REPOSITORY_FIX = "run it in the clone of the project (`git clone URL`)"


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs from HEAD. `state`: the two letters of `git status` (?? is untracked);
    `path`: from the top of the repository."""

    state: str
    path: str


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a Git command, from those around it: without a hook's repository, in
    English, and without locks for what only reads (another Git may be at work)."""
    own = {n: v for n, v in given.items() if not n.startswith("GIT_") or KEPT.fullmatch(n)}
    return {**own, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def output(root: Path, *arguments: str) -> str:
    """What a command prints, without the line end.

    Args:
        root: the folder it works in.
        arguments: of git. A revision of the user's is resolved before (see resolve): it may look
            like an option.

    Raises:
        InputError: Git is missing (no-git), `root` is in no repository (no-repository), or the
            command failed (tool-failed).
    """
    done = _run(root, arguments)
    if done.returncode != 0:
        raise _failure(root, arguments, done)
    return _text(done.stdout)


def found(root: Path, *arguments: str) -> str | None:
    """As `output`, for a command that ends with 1 where there is nothing: then None."""
    done = _run(root, arguments)
    if done.returncode == NO:
        return None
    if done.returncode != 0:
        raise _failure(root, arguments, done)
    return _text(done.stdout)


def resolve(root: Path, revision: str) -> str | None:
    """The full hash of the commit that a branch, tag, hash or expression names; None where it names
    none, as a range, a file or an option does.

    Raises:
        InputError: as `output`.
    """
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    done = _run(root, asked)
    commit = _text(done.stdout)
    if done.returncode == 0 and HASH.fullmatch(commit):
        return commit
    output(root, "rev-parse", "--git-dir")  # Git ends with 128 for HEAD@{99} and for no repository
    return None


def known(root: Path, revision: str, *, field: str, fix: str) -> str:
    """As `resolve`; InputError (no-revision) with `field` and `fix` where there is none."""
    commit = resolve(root, revision)
    if commit is None:
        raise InputError(no_revision(revision, field=field, fix=fix))
    return commit


def no_revision(revision: str, *, field: str | None, fix: str) -> Finding:
    """The finding for a name that `resolve` does not know."""
    message = f"{revision!r} is no revision of this repository"
    return Finding("no-revision", message, field=field, fix=fix)


def data(root: Path, revision: str, path: str) -> bytes | None:
    """The bytes of a file of a revision; None where that has no such file.

    Args:
        root: as `output`.
        revision: whatever `resolve` knows.
        path: from `root`, without a line end.

    Raises:
        InputError: no such revision, a damaged file, or as `output`.
    """
    commit = revision
    if not HASH.fullmatch(revision):
        commit = known(root, revision, field="revision", fix=LOG_FIX)
    asked = ("cat-file", "--batch")
    done = _run(root, asked, f"{commit}:./{path}\n")
    if done.returncode != 0:
        raise _failure(root, asked, done)
    header, _, content = done.stdout.partition(b"\n")
    if not BLOB.fullmatch(header):
        known(root, commit, field="revision", fix=LOG_FIX)
        if " blob " in output(root, "ls-tree", commit, "--", path):
            output(root, "cat-file", "blob", f"{commit}:./{path}")  # damaged: fails with the reason
        return None
    return content[:-1]


def read(root: Path, revision: str, path: str) -> str | None:
    """As `data`, the text in UTF-8; also InputError (not-utf8) where it is none."""
    content = data(root, revision, path)
    return None if content is None else decoded(content, file=f"{revision}:{path}")


def decoded(content: bytes, *, file: str) -> str:
    """The text of a tracked file; InputError (not-utf8) where it is none."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        fix = "save it as UTF-8 and commit it"
        raise InputError(Finding("not-utf8", "is not UTF-8", file=file, fix=fix)) from error


def listed(root: Path, *options: str) -> list[str]:
    """Names of files as `git ls-files` gives them, from `root`; InputError as `output`."""
    return _names(output(root, "ls-files", "-z", *options))


def changes(root: Path, *paths: str, untracked: bool) -> list[Change]:
    """What differs from HEAD below the paths (all where there are none), new files among it where
    `untracked`, whatever the user's settings say; InputError as `output`."""
    new = f"--untracked-files={'normal' if untracked else 'no'}"
    lines = output(root, "status", "--porcelain", "-z", "--no-renames", new, "--", *paths)
    return [Change(line[:2], line[3:]) for line in _names(lines)]


def refs(root: Path, prefix: str, *options: str) -> list[tuple[str, str]]:
    """(full name, hash) of every ref below a prefix, in name order; InputError as `output`."""
    lines = output(root, "for-each-ref", "--format=%(refname) %(objectname)", *options, prefix)
    return [(name, commit) for name, commit in map(str.split, lines.splitlines())]


def pushed(root: Path) -> bool:
    """Whether a branch of a remote, as last fetched, holds HEAD; InputError as `output`."""
    return bool(refs(root, "refs/remotes", "--contains=HEAD"))


def _run(
    root: Path, arguments: tuple[str, ...], given: str = ""
) -> "subprocess.CompletedProcess[bytes]":
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(
            command,
            input=os.fsencode(given),
            env=environment(os.environ),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        fix = "install Git, or put it in PATH"
        raise InputError(Finding("no-git", "git is not installed", fix=fix)) from error


def _failure(
    root: Path, arguments: tuple[str, ...], done: "subprocess.CompletedProcess[bytes]"
) -> InputError:
    words = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[-300:]
    if "not a git repository" in words:
        message = "is in no Git repository"
        return InputError(Finding("no-repository", message, file=str(root), fix=REPOSITORY_FIX))
    message = f"`git {' '.join(arguments)}` ended with {done.returncode}: {words}"
    return InputError(Finding("tool-failed", message, fix="run it by hand to see more"))


def _text(data: bytes) -> str:
    return os.fsdecode(data).removesuffix("\n")  # names may hold any bytes


def _names(text: str) -> list[str]:
    return [name for name in text.split("\0") if name]
