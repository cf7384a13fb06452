"""Where the files of a run are: in the workspace, or at a commit and in the DVC cache.

Reports and params.yaml are in Git. Curves and answers are outputs: of a commit they come from the
cache by the hashes in its dvc.lock, and are absent when the cache does not hold them.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hashtune.errors import Finding, InputError
from hashtune.lineage import git
from hashtune.lineage.lock import read_stages

EXPERIMENTS = "refs/exps/"


class Source(Protocol):
    """One run's files."""

    @property
    def label(self) -> str:
        """What the run is called on the page."""

    def data(self, path: str) -> bytes | None:
        """A file in Git, None when absent."""

    def text(self, path: str) -> str | None:
        """The same in UTF-8."""

    def output(self, path: str) -> dict[str, Path]:
        """Files of a stage's output by relative name; a file is itself under ""."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The run whose results lie in the project's folder."""

    root: Path
    label: str = "workspace"

    def data(self, path: str) -> bytes | None:
        """See Source."""
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def text(self, path: str) -> str | None:
        """See Source."""
        content = self.data(path)
        return None if content is None else git.decoded(content, file=path)

    def output(self, path: str) -> dict[str, Path]:
        """See Source."""
        return files_below(self.root / path)


@dataclass(frozen=True, slots=True)
class Commit:
    """The run that a commit records."""

    root: Path
    commit: str
    label: str
    cache: Path

    def data(self, path: str) -> bytes | None:
        """See Source."""
        return git.data(self.root, self.commit, path)

    def text(self, path: str) -> str | None:
        """See Source."""
        return git.read(self.root, self.commit, path)

    def output(self, path: str) -> dict[str, Path]:
        """See Source."""
        lock = self.text("dvc.lock")
        stages = read_stages(lock) if lock else {}
        for stage in stages.values():
            for out in stage.get("outs", ()):
                if out["path"] == path:
                    return self._cached(str(out["md5"]))
        return {}

    def _cached(self, md5: str) -> dict[str, Path]:
        file = self.cache / "files/md5" / md5[:2] / md5[2:]
        if not file.is_file():
            return {}
        if not md5.endswith(".dir"):
            return {"": file}
        entries = json.loads(file.read_text(encoding="utf-8"))
        files = {entry["relpath"]: self._cached(entry["md5"]).get("") for entry in entries}
        return {name: path for name, path in files.items() if path}


def files_below(path: Path) -> dict[str, Path]:
    """Files of a folder by relative name, or the file itself under ""."""
    if path.is_file():
        return {"": path}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file for file in files}


def commit_source(root: Path, name: str, cache: Path) -> Commit:
    """The run of a revision, or of a DVC experiment by its name.

    Raises:
        InputError: neither is known, or as `git.output`.
    """
    commit = git.resolve(root, name) or dict(experiments(root)).get(name)
    if commit is None:
        message = f"{name!r} is no revision and no experiment here"
        fix = "`git log` and `dvc exp list` name them; without names the workspace is told"
        raise InputError(Finding("no-run", message, field="RUN", fix=fix))
    return Commit(root, commit, name, cache)


def experiments(root: Path) -> list[tuple[str, str]]:
    """(name, commit) of every DVC experiment, as `dvc exp list` names them, in name order.

    Raises:
        InputError: as `git.output`.
    """
    found = []
    for ref, commit in git.refs(root, EXPERIMENTS):
        parts = ref.removeprefix(EXPERIMENTS).split("/")
        if len(parts) == 3:  # two parts of the baseline's hash, then the name
            found.append((parts[2], commit))
    return sorted(found)
