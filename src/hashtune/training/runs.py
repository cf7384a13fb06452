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

from hashtune.errors import Stopped
from hashtune.training.signals import StopRequest
from hashtune.writers import canonical_json, sha256_bytes

RESULT = "result"
POLL_SECONDS = 0.2


def train_identity(parts: Mapping[str, Any]) -> str:
    """Hex sha256 of the canonical JSON of everything that decides the adapter's bits."""
    return sha256_bytes(canonical_json(parts, indent=None).encode())


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
    run.mkdir(parents=True, exist_ok=True)
    with (run / "lock").open("a+", encoding="utf-8") as handle:
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


def finish(run: Path, outputs: Mapping[str, Path]) -> None:
    """Keep a copy of the outputs for a trainer that waits; drop the resume state.

    Without resume state a forced rerun trains from step 1.
    """
    result = run / RESULT
    shutil.rmtree(result, ignore_errors=True)
    temporary = run / f".{RESULT}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    for name, path in outputs.items():
        target = temporary / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy2(path, target)
    temporary.replace(result)
    # names with .tmp: a kill -9 in the middle of a write
    for pattern in ("step-*", ".step-*.tmp", "stable", ".stable.*.tmp"):
        for folder in run.glob(pattern):
            shutil.rmtree(folder)


def take_result(run: Path, outputs: Mapping[str, Path]) -> bool:
    """Copy what another trainer finished; False when it did not finish."""
    result = run / RESULT
    if not result.is_dir():
        return False
    for name, path in outputs.items():
        source = result / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(source, path)
        else:
            shutil.copy2(source, path)
    return True
