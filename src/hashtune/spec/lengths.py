"""How long the parts of a schedule are, in updates, and what fits into no run.

Pure functions of schedule and number of updates; the rates are in training/schedules.py. `spec`
asks with the most steps that a run may have, train with the steps of its plan.
"""

import math

from hashtune.errors import Finding
from hashtune.spec.schema import Checkpoint, Schedule

NO_END = 10**12  # updates of a run whose length no setting bounds
FILE = "params.yaml"


def warmup_updates(schedule: Schedule, *, total: int) -> int:
    """Number of warm-up updates: as given, or the fraction of all updates, rounded half up."""
    if schedule.warmup_steps is not None:
        return schedule.warmup_steps
    assert schedule.warmup_fraction is not None  # spec/training.py refuses neither
    return _rounded(schedule.warmup_fraction * total)


def decay_start(schedule: Schedule, *, total: int) -> int:
    """The last update at the peak before the decay.

    Declared (`decay_start`), it depends on nothing that comes later: runs that differ only in how
    long they decay agree up to there. Of `decay_fraction` so many updates are left after it.
    """
    if schedule.name == "constant":
        return total - 1
    if schedule.name != "wsd":
        return warmup_updates(schedule, total=total)
    if schedule.decay_start is not None:
        return schedule.decay_start
    assert schedule.decay_fraction is not None  # spec/training.py refuses neither
    return total - 1 - _rounded(schedule.decay_fraction * total)


def stable_updates(schedule: Schedule, *, total: int) -> range:
    """After how many updates a run is in its stable phase: none made above or below the peak since
    the warm-up. Empty for a schedule without such a phase."""
    if schedule.name not in ("wsd", "constant"):
        return range(0)
    warmup, last = warmup_updates(schedule, total=total), decay_start(schedule, total=total)
    return range(warmup, last + 2)  # update number `last` is still made at the peak


def _rounded(updates: float) -> int:
    return math.floor(updates + 0.5)


def length_findings(schedule: Schedule, *, total: int) -> list[Finding]:
    """What does not fit into `total` updates: the warm-up, the decay."""
    warmup, start = warmup_updates(schedule, total=total), decay_start(schedule, total=total)
    findings = []
    if warmup > total:
        message = f"{warmup} updates of warm-up, and the run has {total}: it never reaches optim.lr"
        findings.append(_too_long("warmup_steps", message, "a shorter warm-up, or a longer run"))
    elif schedule.name == "wsd" and start < max(0, warmup - 1):
        message = f"the decay begins at update {start}, and the warm-up takes {warmup}"
        findings.append(_too_long("decay", message, "a shorter warm-up or decay"))
    if schedule.name == "wsd" and start >= total - 1:
        message = f"no update is left to decay: it begins at {start} of {total}"
        findings.append(_too_long("decay", message, "an earlier decay, or schedule=constant"))
    return findings


def _too_long(field: str, message: str, fix: str) -> Finding:
    return Finding("schedule-length", message, file=FILE, field=f"schedule.{field}", fix=fix)


def keep_findings(schedule: Schedule, checkpoint: Checkpoint, *, total: int) -> list[Finding]:
    """A state can be kept where a branch can begin: one update at least, none of the decay."""
    stable, step = stable_updates(schedule, total=total), checkpoint.keep_stable
    if step is None or step in stable:
        return []
    message = f"step {step} does not lie in the stable phase, which is that of "
    if not stable:
        message += "no run like this"
    elif total < NO_END or schedule.decay_start is not None:
        message += f"steps {max(1, stable.start)} to {stable.stop - 1}"
    else:
        message += f"step {max(1, stable.start)} on"
    field, fix = "checkpoint.keep_stable", "a step of the stable phase, or null"
    return [Finding("keep-stable", message, file=FILE, field=field, fix=fix)]


def hopeless(schedule: Schedule, checkpoint: Checkpoint, *, most: int | None) -> list[Finding]:
    """What fits into no run of at most `most` steps (None: of any length).

    The rules are those of a run of `most` steps: what does not fit into it does not fit into a
    shorter one, but for a warm-up that is a fraction and shrinks with the run. So a finding counts
    only if it is there without such a warm-up too.
    """
    total = NO_END if most is None else most
    rules = [
        [*length_findings(of, total=total), *keep_findings(of, checkpoint, total=total)]
        for of in (without_fraction(schedule), schedule)
    ]
    certain = {(finding.rule, finding.field) for finding in rules[0]}
    return [finding for finding in rules[1] if (finding.rule, finding.field) in certain]


def without_fraction(schedule: Schedule) -> Schedule:
    """The schedule with the shortest warm-up that it may have in some run."""
    if schedule.warmup_fraction is None:
        return schedule
    return schedule.model_copy(update={"warmup_fraction": None, "warmup_steps": 0})
