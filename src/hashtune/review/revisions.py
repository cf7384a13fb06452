"""The two revisions of a review, each as a folder with the files that Git tracks there.

Everything else here reads those two folders, so that a review never depends on the workspace.
"""

import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hashtune.errors import Finding, InputError

FIX = "give BASE..HEAD with commits, branches or tags; BASE...HEAD begins where they parted"


@dataclass(frozen=True, slots=True)
class Span:
    """Two full commit hashes: the review tells what `head` changes against `base`."""

    base: str
    head: str
    diverged: bool = False  # the base is no ancestor of the head


def read_span(root: Path, text: str) -> Span:
    """The commits of BASE..HEAD, of BASE...HEAD (from their merge base) or of BASE alone (to HEAD).

    Raises:
        InputError: a side that is no revision of the repository, or no common ancestor.
    """
    if not text.strip("."):
        message = f"{text!r} names no revision"
        raise InputError(Finding("no-revision", message, field="BASE..HEAD", fix=FIX))
    parted = "..." in text
    base, _, head = text.partition("..." if parted else "..")
    names = [base or "HEAD", head or "HEAD"]
    commits = [_commit(root, name) for name in names]
    missing = [name for name, commit in zip(names, commits, strict=True) if commit is None]
    if missing:
        raise InputError(
            Finding("no-revision", f"{name!r} is no revision here", field="BASE..HEAD", fix=FIX)
            for name in missing
        )
    first, second = (str(commit) for commit in commits)
    if parted:
        common = _git(root, "merge-base", first, second)
        if common is None:
            message = f"{names[0]!r} and {names[1]!r} have no common ancestor in this clone"
            fix = "clone with full history (`git fetch --unshallow`)"
            raise InputError(Finding("no-merge-base", message, field="BASE...HEAD", fix=fix))
        first = common
    ancestor = _git(root, "merge-base", "--is-ancestor", first, second) is not None
    return Span(first, second, diverged=not ancestor)


def export(root: Path, commit: str, folder: Path) -> Path:
    """Write the tracked regular files of a commit below `folder`; returns it. Links are left out:
    they would lead elsewhere."""
    archive = ["git", "-C", str(root), "archive", "--format=tar", commit]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isreg() else None
                if data is not None:
                    file = folder / member.name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data.read())
    if process.returncode != 0:
        message = f"`git archive {commit}` ended with {process.returncode}"
        raise InputError(Finding("tool-failed", message, fix="run it by hand to see more"))
    return folder


def _commit(root: Path, name: str) -> str | None:
    return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def _git(root: Path, *arguments: str) -> str | None:
    command: Sequence[str] = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
