"""Would this run have come to a kept state by itself? Each difference by the field that makes it.

Compared before a model is loaded: what decides bits (training/identity.py), libraries, the rows of
each step, the eval rows, and the learning rate of each update.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hashtune.errors import Finding
from hashtune.spec.schema import Spec
from hashtune.training.branch_settings import (
    RULE,
    finding,
    keep_findings,
    length_findings,
    phase_findings,
    rate_findings,
    setting_findings,
)
from hashtune.training.checkpoint import Progress
from hashtune.training.plan import Plan
from hashtune.training.stable import rows_digest, step_digests

BASE = "build/base/manifest.json"


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
    yield from _base(state["spec"], run.parts)
    yield from setting_findings(state["spec"], run.parts)
    yield from _libraries(state["code"], run.code)
    yield from _rows(state, run.plan, progress.step)
    schedule, total = run.spec.schedule, len(run.plan.steps)
    if phase := phase_findings(progress.updates, schedule, total=total):
        yield from phase
    else:
        peak = state["spec"]["optim"]["lr"]
        yield from rate_findings(progress.points, schedule, peak=peak, total=total)
    yield from keep_findings(progress.step, run.spec.checkpoint)


def _base(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Finding]:
    if theirs["inputs"].get(BASE) != ours["inputs"].get(BASE):
        message = "the state to branch from was trained over another base"
        yield finding("base_model", message, "the base of the run that kept it")


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
    yield from length_findings(step, total=len(plan.steps))
    ours = step_digests(plan, step)
    for number, (kept, seen) in enumerate(zip(state["steps"], ours, strict=False), start=1):
        if kept != seen:
            message = f"the rows of step {number} differ from those of the state to branch from"
            fix = "the data, data_seed, batch and packing settings of the run that kept it"
            yield finding("data", message, fix)
            break
    if state["eval"] != rows_digest(plan.eval_rows):
        message = "the eval rows differ from those of the state to branch from"
        yield finding("data.eval", message, "the eval data of the run that kept it")
