"""Would this run have come to a kept state by itself? Each difference by the field that makes it.

Compared before a model is loaded: what decides bits (training/identity.py), libraries, the rows of
each step, the eval rows, and the learning rate of each update.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hashtune.errors import Finding
from hashtune.spec.schema import Schedule, Spec
from hashtune.training.checkpoint import Progress
from hashtune.training.identity import field_values
from hashtune.training.plan import Plan
from hashtune.training.schedules import lr_at, stable_updates
from hashtune.training.stable import rows_digest, step_digests

RULE = "branch-differs"
BASE = "build/base/manifest.json"
# compared in another way, or free to differ
APART = {"inputs", "schedule", "branch", "keep_stable"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that would begin with a kept state.

    Attributes:
        spec: the sections that train reads.
        plan: its packing plan.
        parts: what decides its bits, from identity_parts.
        code: the record of build/code/train.json.
    """

    spec: Spec
    plan: Plan
    parts: Mapping[str, Any]
    code: Mapping[str, Any]


def fit_findings(state: Mapping[str, Any], progress: Progress, run: Candidate) -> Iterator[Finding]:
    """All differences between the run that kept `state` and this one.

    Args:
        state: state.json of spec/branch.py.
        progress: its part of that name.
        run: the one that would begin with it.
    """
    yield from _settings(state["spec"], run.parts)
    yield from _libraries(state["code"], run.code)
    yield from _rows(state, run.plan, progress.step)
    peak, total = state["spec"]["optim"]["lr"], len(run.plan.steps)
    yield from _rates(progress, run.spec.schedule, peak, total)
    if (kept := run.spec.checkpoint.keep_stable) is not None and kept <= progress.step:
        message = f"is {kept}, and the branch begins after step {progress.step}"
        yield _finding("checkpoint.keep_stable", message, "a later step, or null")


def _finding(field: str, message: str, fix: str) -> Finding:
    return Finding(RULE, message, file="params.yaml", field=field, fix=fix)


def _settings(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Finding]:
    if theirs["inputs"].get(BASE) != ours["inputs"].get(BASE):
        message = "the state to branch from was trained over another base"
        yield _finding("base_model", message, "the base of the run that kept it")
    kept, wanted = (
        field_values({name: part for name, part in parts.items() if name not in APART})
        for parts in (theirs, ours)
    )
    for field in sorted(kept.keys() | wanted.keys()):
        if kept.get(field) != wanted.get(field):
            message = (
                f"the state to branch from was trained with {kept.get(field)!r}, "
                f"the spec says {wanted.get(field)!r}"
            )
            fix = f"{field} as in the run that kept it, or a state of a run with this value"
            yield _finding(field, message, fix)


def _libraries(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Finding]:
    kept, installed = ({**code.get("packages", {})} for code in (theirs, ours))
    kept["python"], installed["python"] = theirs.get("python"), ours.get("python")
    for name in sorted(kept.keys() | installed.keys()):
        if kept.get(name) != installed.get(name):
            message = f"the state to branch from was trained with {name} {kept.get(name)}, "
            message += f"this is {name} {installed.get(name)}"
            fix = "the requirements.lock of the run that kept it, or keep a state again"
            yield Finding(RULE, message, file="requirements.lock", fix=fix)


def _rows(state: Mapping[str, Any], plan: Plan, step: int) -> Iterator[Finding]:
    if len(plan.steps) <= step:
        message = f"the plan has {len(plan.steps)} steps and the branch begins after step {step}"
        yield _finding("duration.max_steps", f"{message}: none is left", "a longer run")
    ours = step_digests(plan, step)
    for number, (kept, seen) in enumerate(zip(state["steps"], ours, strict=False), start=1):
        if kept != seen:
            message = f"the rows of step {number} differ from those of the state to branch from"
            fix = "the data, data_seed, batch and packing settings of the run that kept it"
            yield _finding("data", message, fix)
            break
    if state["eval"] != rows_digest(plan.eval_rows):
        message = "the eval rows differ from those of the state to branch from"
        yield _finding("data.eval", message, "the eval data of the run that kept it")


def _rates(progress: Progress, schedule: Schedule, peak: float, total: int) -> Iterator[Finding]:
    stable, updates = stable_updates(schedule, total=total), progress.updates
    if updates < stable.start:
        message = f"the branch begins after {updates} updates, in the warm-up of {stable.start}"
        yield _finding("schedule.warmup_steps", message, "a shorter warm-up, or a later state")
        return
    if updates >= stable.stop:
        message = f"the branch begins after {updates} updates, in the decay: after "
        message += f"{stable.stop - 1} the last one at optim.lr is made"
        yield _finding("schedule.decay_start", message, "a later decay, or an earlier state")
        return
    made = [point["train/lr"] for point in progress.points if "train/lr" in point]
    for number, rate in enumerate(made):
        if (now := lr_at(number, peak=peak, total=total, schedule=schedule)) != rate:
            message = f"update {number + 1} was made at a rate of {rate:.6g}, this schedule gives "
            message += f"{now:.6g}"
            fix = "the warm-up of the run that kept the state, as schedule.warmup_steps"
            yield _finding("schedule.warmup_steps", message, fix)
            return
