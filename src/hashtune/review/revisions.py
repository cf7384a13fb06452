"""The two revisions of a review, each as a folder with the files that Git tracks there.

Everything else here reads those two folders, so that a review never depends on the workspace.
"""

import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.lineage import git

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
        InputError: a side that is no revision of the repository, no common ancestor, or as
            `git.output`.
    """
    if not text.strip("."):
        message = f"{text!r} names no revision"
        raise InputError(Finding("no-revision", message, field="BASE..HEAD", fix=FIX))
    parted = "..." in text
    base, _, head = text.partition("..." if parted else "..")
    names = [base or "HEAD", head or "HEAD"]
    commits = [git.resolve(root, name) for name in names]
    missing = [name for name, commit in zip(names, commits, strict=True) if commit is None]
    if missing:
        raise InputError(git.no_revision(name, field="BASE..HEAD", fix=FIX) for name in missing)
    first, second = (str(commit) for commit in commits)
    if parted:
        common = git.found(root, "merge-base", first, second)
        if common is None:
            message = f"{names[0]!r} and {names[1]!r} have no common ancestor in this clone"
            fix = "clone with full history (`git fetch --unshallow`)"
            raise InputError(Finding("no-merge-base", message, field="BASE...HEAD", fix=fix))
        first = common
    ancestor = git.found(root, "merge-base", "--is-ancestor", first, second) is not None
    return Span(first, second, diverged=not ancestor)


def export(root: Path, commit: str, folder: Path) -> Path:
    """Write the tracked regular files of a commit below `folder`; returns it. Links are left out:
    they would lead elsewhere.

    Raises:
        InputError: no such commit, or as `git.output`.
    """
    whole = git.known(root, commit, field="BASE..HEAD", fix=FIX)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "commit.tar"
        git.output(root, "archive", "--format=tar", f"--output={file}", whole)
        with tarfile.open(file) as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isreg() else None
                if data is not None:
                    target = folder / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data.read())
    return folder
