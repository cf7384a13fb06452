"""The state of a stable phase, kept for branches; what lies in it: spec/branch.py.

Beside what a checkpoint holds it says which rows each step saw and which libraries counted, so that
another run can prove that it would have come to the same state. The same run writes the same bytes:
no clock and no machine is in it.
"""

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.torch import save_file
from torch import Tensor

from hashtune import writers
from hashtune.records import Row
from hashtune.spec.branch import FILES, MANIFEST, STATE, TENSORS
from hashtune.training.checkpoint import Progress
from hashtune.training.plan import Plan, Settings
from hashtune.training.randomness import python_and_numpy_states, torch_states
from hashtune.training.space import check_space

KEPT = "stable"  # in the run's folder, until the run ends
NOTHING: dict[str, object] = {
    "files": {},
    "step": None,
}  # the manifest of a run that kept no state: DVC needs the out


def keep(settings: Settings, plan: Plan, progress: Progress, tensors: Mapping[str, Tensor]) -> Path:
    """Write the state after progress.step into the run's folder; complete or absent.

    Args:
        settings: of the run: its folder, identity and what made it up, libraries.
        plan: its packing plan.
        progress: position, curves and counters.
        tensors: "adapter.<name>", "optimizer.<slot>.<name>", and "best.<name>" where the adapter of
            the best step is another one.
    """
    state = {
        "identity": settings.identity,
        "spec": settings.spec,
        "code": settings.code,
        "progress": asdict(progress),
        "rng": python_and_numpy_states(),
        "steps": step_digests(plan, progress.step),
        "eval": rows_digest(plan.eval_rows),
    }
    everything = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    everything |= torch_states()
    check_space(settings.run, everything)
    with writers.staged_directory(settings.run / KEPT) as folder:
        writers.write_json(folder / STATE, state)
        save_file(everything, folder / TENSORS)
        files = {
            name: {
                "size": (folder / name).stat().st_size,
                "sha256": writers.sha256_file(folder / name),
            }
            for name in FILES
        }
        writers.write_json(folder / MANIFEST, {"step": progress.step, "files": files})
    return settings.run / KEPT


def hand_out(run: Path, out: Path) -> dict[str, object] | None:
    """Copy what the run kept to its output, and give step and pin; None where it kept nothing."""
    with writers.staged_directory(out) as folder:
        if not (run / KEPT).is_dir():
            writers.write_json(folder / MANIFEST, NOTHING)
            return None
        for name in (*FILES, MANIFEST):
            shutil.copyfile(run / KEPT / name, folder / name)
    step = writers.read_json(out / MANIFEST)["step"]
    return {"step": step, "sha256": writers.sha256_file(out / MANIFEST)}


def step_digests(plan: Plan, count: int) -> list[str]:
    """Hex sha256 of what each of the first `count` steps sees: its rows, in their order."""
    numbers = {number for step in plan.steps[:count] for number in step}
    known = {number: _row_digest(plan.rows[number]) for number in sorted(numbers)}
    return [_joined(known[number] for number in step) for step in plan.steps[:count]]


def rows_digest(rows: Sequence[Row]) -> str:
    """Hex sha256 of rows, in their order."""
    return _joined(map(_row_digest, rows))


def _joined(digests: Iterable[str]) -> str:
    return writers.sha256_bytes("\n".join(digests).encode("ascii"))


def _row_digest(row: Row) -> str:
    """Its number counts too: NEFTune's noise is drawn by it."""
    head = writers.canonical_json([row.row, row.example_ids, row.lengths], indent=None)
    digest = hashlib.sha256(head.encode("utf-8"))
    for values in (row.input_ids, row.labels):
        digest.update(np.asarray(values, dtype="<i8").tobytes())
    return digest.hexdigest()
