"""What a spec alone says against a branch: `hashtune check` asks it, and train with the plan.

No torch and no tensors: state.json of the kept state is read and compared with the spec.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.branch import FIELD, STATE, branch_step
from hashtune.spec.branch import RULE as NO_STATE
from hashtune.spec.lengths import NO_END, stable_updates, without_fraction
from hashtune.spec.schema import BranchFrom, Checkpoint, Schedule, Spec
from hashtune.training.identity import field_values, identity_parts
from hashtune.training.schedules import lr_at
from hashtune.writers import read_json

RULE = "branch-differs"
KEYS = {"identity", "spec", "code", "progress", "rng", "steps", "eval"}
# compared in another way, or free to differ
APART = {"inputs", "schedule", "branch", "keep_stable"}


def finding(field: str, message: str, fix: str) -> Finding:
    """Of a field that is not what the run that kept the state had."""
    return Finding(RULE, message, file="params.yaml", field=field, fix=fix)


def no_state(message: str) -> InputError:
    """For a folder that holds something else."""
    fix = "build/train/stable as the run with checkpoint.keep_stable wrote it"
    return InputError(Finding(NO_STATE, message, file="params.yaml", field=FIELD, fix=fix))


def read_state(pin: BranchFrom, root: Path) -> dict[str, Any]:
    """state.json of the pinned folder, whose hashes fit.

    Raises:
        InputError: as spec/branch.py, and for a file that is no state of the manifest's step.
    """
    step, file = branch_step(pin, root), root / pin.path / STATE
    try:
        state = read_json(file)
    except ValueError as error:
        raise no_state(f"{pin.path} holds no kept state: {error}") from error
    if not _whole(state) or state["progress"]["step"] != step:
        raise no_state(f"{pin.path}/{STATE} is not the state of step {step}")
    return dict(state)


def _whole(state: Any) -> bool:
    """Whether what is compared is there: a state made by hand may lack it."""
    if not isinstance(state, dict) or state.keys() != KEYS or not isinstance(state["steps"], list):
        return False
    spec, code, progress = state["spec"], state["code"], state["progress"]
    if not all(isinstance(part, dict) for part in (spec, code, progress)):
        return False
    inputs, optim, points = spec.get("inputs"), spec.get("optim"), progress.get("points")
    return (
        isinstance(inputs, dict)
        and isinstance(optim, dict)
        and isinstance(optim.get("lr"), int | float)
        and all(type(progress.get(name)) is int for name in ("step", "updates"))
        and isinstance(points, list)
        and all(isinstance(point, dict) for point in points)
    )


def declared_findings(spec: Spec, root: Path) -> list[Finding]:
    """What train will refuse whatever the data and the base are; nothing without a branch.

    Of the length of the run duration.max_steps is known as a bound, and of a warm-up that is a
    fraction nothing: see spec/lengths.py.

    Raises:
        InputError: as read_state.
    """
    pin = spec.schedule.branch_from
    if pin is None:
        return []
    state, most = read_state(pin, root), spec.duration.max_steps
    progress, total = state["progress"], NO_END if most is None else most
    schedule = without_fraction(spec.schedule)
    found = [*setting_findings(state["spec"], identity_parts(spec, []))]
    found += length_findings(progress["step"], total=total)
    phase = phase_findings(progress["updates"], schedule, total=total)
    found += phase
    if not phase and schedule is spec.schedule:
        peak = state["spec"]["optim"]["lr"]
        found += rate_findings(progress["points"], schedule, peak=peak, total=total)
    return found + keep_findings(progress["step"], spec.checkpoint)


def setting_findings(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Finding]:
    """Each field that decides bits and differs; both as identity_parts gives them."""
    kept, wanted = _leaves(theirs), _leaves(ours)
    for field in sorted(kept.keys() | wanted.keys()):
        if kept.get(field) != wanted.get(field):
            message = (
                f"the state to branch from was trained with {kept.get(field)!r}, "
                f"the spec says {wanted.get(field)!r}"
            )
            fix = f"{field} as in the run that kept it, or a state of a run with this value"
            yield finding(field, message, fix)


def _leaves(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted field of the spec to value, of what is compared here."""
    return field_values({name: part for name, part in parts.items() if name not in APART})


def length_findings(step: int, *, total: int) -> list[Finding]:
    """A step must be left to run after the branch."""
    if total > step:
        return []
    message = f"the plan has {total} steps and the branch begins after step {step}: none is left"
    return [finding("duration.max_steps", message, "a longer run")]


def phase_findings(updates: int, schedule: Schedule, *, total: int) -> list[Finding]:
    """The branch begins after the warm-up and before the decay."""
    stable = stable_updates(schedule, total=total)
    if updates < stable.start:
        message = f"the branch begins after {updates} updates, in the warm-up of {stable.start}"
        fix = "a shorter warm-up, or a later state"
        return [finding("schedule.warmup_steps", message, fix)]
    if updates >= stable.stop:
        message = f"the branch begins after {updates} updates, in the decay: after "
        message += f"{stable.stop - 1} the last one at optim.lr is made"
        return [finding("schedule.decay_start", message, "a later decay, or an earlier state")]
    return []


def rate_findings(
    points: Sequence[Mapping[str, Any]], schedule: Schedule, *, peak: float, total: int
) -> list[Finding]:
    """The first update that this schedule makes at another rate than the curves have."""
    made = [point["train/lr"] for point in points if "train/lr" in point]
    for number, rate in enumerate(made):
        if (now := lr_at(number, peak=peak, total=total, schedule=schedule)) != rate:
            message = f"update {number + 1} was made at a rate of {rate:.6g}, this schedule gives "
            message += f"{now:.6g}"
            fix = "the warm-up of the run that kept the state, as schedule.warmup_steps"
            return [finding("schedule.warmup_steps", message, fix)]
    return []


def keep_findings(step: int, checkpoint: Checkpoint) -> list[Finding]:
    """A state of the steps that are not run cannot be kept."""
    kept = checkpoint.keep_stable
    if kept is None or kept > step:
        return []
    message = f"is {kept}, and the branch begins after step {step}"
    return [finding("checkpoint.keep_stable", message, "a later step, or null")]
