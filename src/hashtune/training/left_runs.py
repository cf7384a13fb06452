"""Runs that were stopped: which can go on, which are broken, which have a trainer at work."""

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hashtune import writers
from hashtune.training import checkpoint, intact


@dataclass(frozen=True, slots=True)
class LeftRun:
    """A folder of $HASHTUNE_HOME/runs with checkpoints.

    Attributes:
        folder: its path; the name is the train identity.
        step: of the newest complete checkpoint, None when none is complete.
        reasons: why checkpoints were passed over.
        holder: who trains there now, as its lock says ("pid 12 on host"), or None.
        bytes: what it takes on the disk.
    """

    folder: Path
    step: int | None
    reasons: list[str]
    holder: str | None
    bytes: int


def left_runs(home: Path) -> Iterator[LeftRun]:
    """Every run with checkpoints, in the order of their names. Hashes each run's newest one."""
    runs = home / "runs"
    for folder in sorted(path for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else ():
        steps = checkpoint.steps(folder)
        if not steps:
            continue
        complete, reasons = None, []
        for step in reversed(steps):
            reason = _reason(checkpoint.directory(folder, step))
            if reason is None:
                complete = step
                break
            reasons.append(f"step {step}: {reason}")
        size = sum(_bytes(file) for file in folder.rglob("*"))
        yield LeftRun(folder, complete, reasons, holder(folder), size)


def _reason(folder: Path) -> str | None:
    try:
        return intact.complete(folder)
    except FileNotFoundError:  # its trainer pruned it
        return "was removed meanwhile"


def _bytes(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


def holder(run: Path) -> str | None:
    """Who trains in this folder; the kernel lets go of the lock when the holder dies."""
    lock = run / "lock"
    if not lock.is_file():
        return None
    with lock.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                known = writers.read_json(lock)
            except ValueError:  # it is being written
                return "a process"
            return f"pid {known['pid']} on {known['host']}"
    return None
