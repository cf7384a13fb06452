"""Checkpoints one can resume from exactly.

    <run>/step-00000040/state.json           position, updates, skipped steps, curves, samples,
                                             RNG, spec
    <run>/step-00000040/tensors.safetensors  adapter, optimizer moments, torch RNG state
    <run>/step-00000040/manifest.json        size and sha256 of the two; written last

A folder is written under a temporary name, flushed, renamed; without a manifest that fits it is no
checkpoint. Nothing is pickled: JSON and safetensors only.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.training.randomness import python_and_numpy_states, torch_states

NAME = re.compile(r"step-(\d{8})")
FILES = ("state.json", "tensors.safetensors")


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
    run: Path, progress: Progress, tensors: Mapping[str, Tensor], *, identity: str, spec: object
) -> Path:
    """Write the checkpoint for progress.step; complete or absent, never half."""
    target = directory(run, progress.step)
    state = {
        "identity": identity,
        "progress": asdict(progress),
        "rng": python_and_numpy_states(),
        "spec": spec,
    }
    everything = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    everything |= torch_states()
    check_space(run, everything)
    with writers.staged_directory(target) as folder:
        writers.write_json(folder / "state.json", state)
        save_file(everything, folder / "tensors.safetensors")
        manifest = {
            name: {
                "size": (folder / name).stat().st_size,
                "sha256": writers.sha256_file(folder / name),
            }
            for name in FILES
        }
        writers.write_json(folder / "manifest.json", manifest)
    return target


def check_space(run: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError unless the disk of `run` has room for twice these tensors."""
    need = 2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    run.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(run).free
    if free < need:
        raise InputError(
            Finding(
                "disk-full",
                f"a checkpoint needs about {need / 1e6:.0f} MB, {free / 1e6:.0f} MB are free",
                file=str(run),
                fix="free some space, or set HASHTUNE_HOME to another disk; the last good "
                "checkpoint is untouched",
            )
        )


def complete(folder: Path) -> str | None:
    """None for a complete checkpoint, else the reason why it is none."""
    if not (folder / "manifest.json").is_file():
        return "manifest.json is missing"
    manifest = _read_manifest(folder / "manifest.json")
    if manifest is None:
        return "manifest.json is not a manifest of ours (cut off?)"
    for name, entry in manifest.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["size"]:
            return f"{name} has {file.stat().st_size} bytes, its manifest says {entry['size']}"
        if writers.sha256_file(file) != entry["sha256"]:
            return f"{name} differs from its manifest"
    return None


def _read_manifest(path: Path) -> dict[str, dict[str, Any]] | None:
    """The manifest, or None when it is cut off, empty or does not name exactly FILES."""
    try:
        manifest = writers.read_json(path)
    except ValueError:  # JSONDecodeError and UnicodeDecodeError
        return None
    if not isinstance(manifest, dict) or sorted(manifest) != sorted(FILES):
        return None
    fits = all(isinstance(e, dict) and e.keys() == {"size", "sha256"} for e in manifest.values())
    return manifest if fits else None


def steps(run: Path) -> list[int]:
    """Steps of all checkpoint folders of a run, complete or not, in numeric order."""
    if not run.is_dir():
        return []
    matches = (NAME.fullmatch(path.name) for path in run.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def newest(run: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and why newer ones were passed over.

    Raises InputError when checkpoints exist but none is complete: no silent restart.
    """
    notes: list[str] = []
    for step in reversed(steps(run)):
        reason = complete(directory(run, step))
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


def load(folder: Path, *, identity: str, parameters: Sequence[str]) -> Loaded:
    """What a complete checkpoint holds; nothing is restored yet.

    Raises InputError when it is incomplete or belongs to another train identity or to other
    parameters.
    """
    reason = complete(folder)
    if reason is not None:
        raise InputError(Finding("broken-checkpoint", reason, file=str(folder)))
    state = writers.read_json(folder / "state.json")
    tensors = load_file(folder / "tensors.safetensors")
    saved = sorted(name[8:] for name in tensors if name.startswith("adapter."))
    if state["identity"] != identity:
        problem = f"belongs to train identity {state['identity'][:16]}, this is {identity[:16]}"
    elif saved != sorted(parameters):
        problem = f"holds other parameters: {sorted(set(saved) ^ set(parameters))[0]} differs"
    else:
        return Loaded(Progress(**state["progress"]), tensors, state["rng"])
    raise InputError(
        Finding("foreign-checkpoint", problem, file=str(folder), fix=f"rm -r {folder.parent}")
    )


def prune(run: Path, *, keep_last: int, best_step: int | None, written: int) -> None:
    """Keep the newest `keep_last` checkpoints up to step `written`, and the best one.

    A folder beyond `written`, the step just saved, is a broken one that the resume passed over:
    counted among the newest, it would push out the only good one.
    """
    kept = {*[step for step in steps(run) if step <= written][-keep_last:], best_step}
    for step in steps(run):
        if step not in kept:
            shutil.rmtree(directory(run, step))
