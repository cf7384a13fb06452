"""Where a run's resume state lives, who may write it, and what a finished run leaves.

The state is keyed by the train identity, the hash of everything that decides train's bits. Keyed
by less, a code change between kill and resume would record a mixed adapter as the new code's.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune import folders, writers
from hashtune.errors import Stopped
from hashtune.training import checkpoint as checkpoints
from hashtune.training import handed
from hashtune.training.handed import RESULT
from hashtune.training.signals import StopRequest
from hashtune.training.space import full_disk
from hashtune.training.stable import KEPT

POLL_SECONDS = 0.2


def train_identity(parts: Mapping[str, Any]) -> str:
    """Hex sha256 of the canonical JSON of everything that decides the adapter's bits."""
    return writers.sha256_bytes(writers.canonical_json(parts, indent=None).encode())


@dataclass(frozen=True, slots=True)
class Lock:
    """The run folder is ours; `waited` says that another trainer held it before."""

    waited: bool


@contextmanager
def exclusive(run: Path, stop: StopRequest) -> Iterator[Lock]:
    """One trainer per identity: take the run's lock, wait while another process holds it.

    The kernel releases the lock when its holder dies, however it dies. Polls, because a blocking
    flock is taken up again after a signal: a waiting trainer could not be stopped. Raises Stopped
    when `stop` is set while it waits.
    """
    folders.make_folder(run)
    with (run / "lock").open("a+", encoding="utf-8") as handle:
        waited = not _try_lock(handle.fileno())
        if waited:  # for longer than a look at it takes (left_runs.py)
            time.sleep(POLL_SECONDS)
            waited = not _try_lock(handle.fileno())
        if waited:
            handle.seek(0)
            holder = handle.read().strip()
            print(f"  another trainer holds this run ({holder}); waiting", flush=True)
            while not _try_lock(handle.fileno()):
                if stop:
                    raise Stopped(f"{stop.signal} while another trainer held this run")
                time.sleep(POLL_SECONDS)
        handle.seek(0)
        handle.truncate()
        json.dump({"pid": os.getpid(), "host": os.uname().nodename, "start": time.time()}, handle)
        handle.flush()
        yield Lock(waited)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def finish(run: Path, outputs: Mapping[str, Path], *, lock: Path) -> None:
    """Keep a copy of the outputs, for a trainer that waits and for a DVC that dies before it writes
    its record to `lock`; drop the resume state.

    Without resume state a forced rerun trains from step 1. The newest checkpoint goes last: a kill
    in between leaves one to continue from.
    """
    with full_disk(run), folders.staged_directory(run / RESULT) as folder:
        for name, path in outputs.items():
            _copy(path, folder / name)
        handed.write_manifest(folder, lock)
    clear(run)


def clear(run: Path) -> None:
    """Drop the resume state."""
    for step in checkpoints.steps(run):
        folders.remove_folder(checkpoints.directory(run, step))
    if (run / KEPT).exists():
        folders.remove_folder(run / KEPT)
    checkpoints.sweep(run)


def take_result(run: Path, outputs: Mapping[str, Path]) -> bool:
    """Copy what another trainer finished, each output whole; False when it did not finish, or when
    the copy is damaged."""
    result = run / RESULT
    if not handed.whole(result):
        return False
    for name, path in outputs.items():
        if (result / name).is_dir():
            with folders.staged_directory(path) as folder:
                _copy(result / name, folder)
        else:
            writers.write_bytes(path, (result / name).read_bytes())
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
