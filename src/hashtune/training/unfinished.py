"""Resume state that nearly fits: why a run starts at step 1 though one was interrupted.

State is found by the train identity, so another library or an edit between kill and resume finds
none. Saying nothing would look like lost progress.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.training import checkpoint as checkpoints
from hashtune.training.differences import differences
from hashtune.training.intact import STATE, complete
from hashtune.training.left_runs import holder

NEAR = 3  # more differences make another experiment


def unfinished(run: Path, now: Mapping[str, Any]) -> list[str]:
    """A line for each interrupted run beside `run` that differs in at most three parts.

    Args:
        run: this run's folder; empty unless it has no checkpoint itself. Runs that a trainer works
            on now are left out.
        now: its "spec" (identity_parts) and "code" (the record of build/code/train.json).
    """
    if checkpoints.steps(run) or not run.parent.is_dir():
        return []
    others = sorted(folder for folder in run.parent.iterdir() if folder != run)
    return [line for folder in others for line in _of(folder, now)]


def _of(other: Path, now: Mapping[str, Any]) -> list[str]:
    if not checkpoints.steps(other) or holder(other):
        return []
    try:
        return list(_line(other, now))
    except FileNotFoundError:  # a trainer that just began there pruned what was read
        return []


def _line(other: Path, now: Mapping[str, Any]) -> Iterator[str]:
    for step in reversed(checkpoints.steps(other)):
        folder = checkpoints.directory(other, step)
        if complete(folder) is not None:
            continue
        state = writers.read_json(folder / STATE)
        if state.get("format") == checkpoints.FORMAT:
            found = list(differences(state, now))
            if len(found) <= NEAR:
                yield f"another run stopped after step {step} and is not continued; " + "; ".join(
                    found
                )
        return
