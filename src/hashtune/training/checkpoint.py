"""Checkpoints one can resume from exactly.

    <run>/step-00000040/state.json           position, updates, skipped steps, curves, samples,
                                             RNG, spec, code and library versions
    <run>/step-00000040/tensors.safetensors  adapter, optimizer moments, torch RNG state
    <run>/step-00000040/manifest.json        size and sha256 of the two; written last

A folder is written under a temporary name, flushed, renamed, and renamed again before it is
removed; without a manifest that fits it is no checkpoint. Nothing is pickled: JSON and safetensors
only.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune import folders, writers
from hashtune.errors import Finding, InputError
from hashtune.training.differences import differences
from hashtune.training.intact import STATE, TENSORS, complete, write_manifest
from hashtune.training.randomness import python_and_numpy_states, torch_states
from hashtune.training.space import check_space, full_disk

NAME = re.compile(r"step-(\d{8})")
LEFTOVERS = (".step-*.tmp", ".stable.*.tmp", ".result.*.tmp")  # of a kill in a write or a removal
FORMAT = 1  # another one is refused, not guessed at


@dataclass(slots=True)
class Progress:
    """Where a run is. `step`: steps consumed (data position); `updates`: those applied;
    `scaler`: the loss scale of fp16 and what decides its next change."""

    step: int = 0
    updates: int = 0
    skipped: list[int] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    best_step: int | None = None
    best_loss: float | None = None
    samples: list[dict[str, Any]] = field(default_factory=list)
    scaler: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint in memory. tensors: "adapter.<name>", "optimizer.<slot>.<name>", "rng.<device>";
    rng: the states of Python's and NumPy's generators."""

    progress: Progress
    tensors: dict[str, Tensor]
    rng: dict[str, Any]


def directory(run: Path, step: int) -> Path:
    """Folder of the checkpoint after `step` steps."""
    return run / f"step-{step:08d}"


def save(
    run: Path,
    progress: Progress,
    tensors: Mapping[str, Tensor],
    *,
    identity: str,
    spec: object,
    code: object,
) -> Path:
    """Write the checkpoint for progress.step; complete or absent, never half.

    Sweeps what a kill left of earlier writes: the run's lock is ours. A folder that has the name
    already is a broken one, since a resume begins at the newest that is complete.

    Args:
        run: folder of the run's state.
        progress: position, curves and counters.
        tensors: "adapter.<name>" and "optimizer.<slot>.<name>".
        identity: the train identity.
        spec: what made the identity up, from identity_parts.
        code: the record of build/code/train.json.

    Raises:
        InputError: the disk has no room, or had none in the middle.
    """
    target = directory(run, progress.step)
    state = {
        "format": FORMAT,
        "identity": identity,
        "progress": asdict(progress),
        "rng": python_and_numpy_states(),
        "spec": spec,
        "code": code,
    }
    everything = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    everything |= torch_states()
    with full_disk(run):
        sweep(run)
        check_space(run, everything)
        with folders.staged_directory(target) as folder:
            writers.write_json(folder / STATE, state)
            save_file(everything, folder / TENSORS)
            write_manifest(folder)
    return target


def sweep(run: Path) -> None:
    """Remove what a kill left under temporary names."""
    for pattern in LEFTOVERS:
        for folder in run.glob(pattern):
            shutil.rmtree(folder)


def steps(run: Path) -> list[int]:
    """Steps of all checkpoint folders of a run, complete or not, in numeric order."""
    if not run.is_dir():
        return []
    matches = (NAME.fullmatch(path.name) for path in run.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def at_end(run: Path, steps_planned: int) -> bool:
    """Whether a complete checkpoint lies at the end of the plan: nothing is left to train."""
    return complete(directory(run, steps_planned)) is None


def newest(run: Path, *, best_after: int | None = None) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and why newer ones were passed over.

    Args:
        run: folder of the run's state.
        best_after: for a run that hands out its best adapter: of a best step above this one the
            checkpoint must be complete too, or the end of the run could not use it. None: the last
            adapter is handed out.

    Raises:
        InputError: checkpoints exist but none is complete: no silent restart.
    """
    notes: list[str] = []
    for step in reversed(steps(run)):
        reason = complete(directory(run, step))
        if reason is None and best_after is not None:
            reason = _best_is_lost(run, step, best_after)
        if reason is None:
            return directory(run, step), notes
        notes.append(f"{directory(run, step).name} skipped: {reason}")
    if notes:
        raise InputError(
            Finding(
                "no-checkpoint",
                "checkpoints exist but none is complete: " + "; ".join(notes),
                file=str(run),
                fix=f"look at them; to start afresh remove the folder: rm -r {run}",
            )
        )
    return None, []


def _best_is_lost(run: Path, step: int, best_after: int) -> str | None:
    """Why the best adapter that this checkpoint tells of is not to be had, if so."""
    best = writers.read_json(directory(run, step) / STATE)["progress"]["best_step"]
    if best is None or best == step or best <= best_after:
        return None
    reason = complete(directory(run, best))
    return reason and f"its best one, {directory(run, best).name}: {reason}"


def load(
    folder: Path,
    *,
    identity: str,
    parameters: Sequence[str],
    steps: int,
    spec: Mapping[str, Any],
    code: Mapping[str, Any],
) -> Loaded:
    """What a complete checkpoint holds; nothing is restored yet. `steps`: of the run's plan.

    Raises:
        InputError: it is incomplete, of another format, behind the plan's end, or belongs to
            another train identity (the first part that differs is named) or to other parameters.
    """
    reason = complete(folder)
    if reason is not None:
        raise InputError(Finding("broken-checkpoint", reason, file=str(folder)))
    state = writers.read_json(folder / STATE)
    if state.get("format") != FORMAT:
        message = f"is of format {state.get('format')}, this code reads {FORMAT}"
        raise _foreign(folder / STATE, message)
    if state["identity"] != identity:
        first = next(differences(state, {"spec": spec, "code": code}), "its parts are the same")
        message = f"belongs to train identity {state['identity'][:16]}, this is {identity[:16]}"
        raise _foreign(folder, f"{message}; {first}")
    tensors = load_file(folder / TENSORS)
    saved = sorted(name[8:] for name in tensors if name.startswith("adapter."))
    if saved != sorted(parameters):
        first = sorted(set(saved) ^ set(parameters))[0]
        where = "only there" if first in saved else "only here"
        raise _foreign(folder, f"holds other parameters: {first} differs, it is {where}")
    progress = Progress(**state["progress"])
    if progress.step > steps:
        raise _foreign(folder, f"was written after step {progress.step}, the plan has {steps}")
    return Loaded(progress, tensors, state["rng"])


def _foreign(place: Path, problem: str) -> InputError:
    run = next(folder for folder in place.parents if NAME.fullmatch(folder.name) is None)
    return InputError(Finding("foreign-checkpoint", problem, file=str(place), fix=f"rm -r {run}"))


def prune(run: Path, *, keep_last: int, best_step: int | None, written: int) -> None:
    """Keep the newest `keep_last` checkpoints up to step `written`, and the best one.

    A folder beyond `written`, the step just saved, is a broken one that the resume passed over:
    counted among the newest, it would push out the only good one.
    """
    kept = {*[step for step in steps(run) if step <= written][-keep_last:], best_step}
    for step in steps(run):
        if step not in kept:
            folders.remove_folder(directory(run, step))
