"""Whether a revision's reports are results of its own spec, by what its dvc.lock says.

A report that was edited by hand, or a lock that was made with other settings, would otherwise be
told as a result. Outputs below build/ are not in Git; `hashtune verify` proves those.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.lineage.lock import changed_params

REPORTS = "reports/"
FIX = "git checkout dvc.lock && dvc repro"


@dataclass(frozen=True, slots=True)
class Foreign:
    """What speaks against the results of a revision: `reports` that are not the files DVC recorded,
    and (stage, setting or file) of each input that is another one now than when the stage ran."""

    reports: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reports or self.inputs)


def foreign(
    root: Path, lock: Mapping[str, Any], params: Mapping[str, Any], *, told: Collection[str] = ()
) -> Foreign:
    """What in a revision's folder is not what its lock says.

    Args:
        root: the folder with the revision's tracked files.
        lock: its stages in dvc.lock; without any nothing is said.
        params: its params.yaml.
        told: stages that are known not to have run again.

    Raises:
        InputError: broken-lock; an entry that is none.
    """
    try:
        return _foreign(root, lock, params, told)
    except (AttributeError, KeyError, TypeError) as error:
        message = "is cut or damaged"
        raise InputError(Finding("broken-lock", message, file="dvc.lock", fix=FIX)) from error


def _foreign(
    root: Path, lock: Mapping[str, Any], params: Mapping[str, Any], told: Collection[str]
) -> Foreign:
    made = {path: digest for _, path, digest in _files(lock, "outs")}
    reports = [path for path in made if path.startswith(REPORTS) and _md5(root, path) != made[path]]
    inputs = [(stage, key) for stage, key, _ in changed_params(lock, params)]
    for stage, path, digest in _files(lock, "deps"):
        now = _md5(root, path) or made.get(path, digest)  # a file of Git, or another stage's output
        inputs += [(stage, path)] if now != digest else []
    left = [pair for pair in inputs if pair[0] not in told and pair[1] not in reports]
    return Foreign(tuple(reports), tuple(left))


def _files(lock: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, str]]:
    """(stage, path, md5) of each file that the lock names."""
    for name, stage in lock.items():
        for entry in stage.get(kind) or ():
            yield name, entry["path"], entry["md5"]


def _md5(root: Path, path: str) -> str | None:
    """Of the bytes of a file; None for a folder, and for what Git does not hold."""
    file = root / path
    return md5(file.read_bytes(), usedforsecurity=False).hexdigest() if file.is_file() else None
