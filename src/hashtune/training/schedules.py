"""Learning-rate schedules: pure functions of the update number.

`update` counts optimizer updates that were made (0-based); a skipped step does not move it.

    cosine, linear    /`-._    warm-up, then down to the floor at the last update
    constant          /-----   warm-up, then the peak
    wsd               /---\\    warm-up, stable at the peak, decay to the floor (Hu et al. 2024,
                               arXiv 2404.06395; 1-sqrt: Haegele et al. 2024, arXiv 2405.18392)
"""

import math

from hashtune.errors import Finding
from hashtune.spec.schema import Schedule


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


def lr_at(update: int, *, peak: float, total: int, schedule: Schedule) -> float:
    """Learning rate of update number `update` of `total`.

    Warm-up is linear and reaches `peak` at its last update: peak * (update + 1) / warmup, so that
    no update is made at 0. After it, with t in [0, 1] the share of the decay that is done (t = 1 at
    the last update): cosine floor + (peak - floor) * (1 + cos(pi * t)) / 2, linear
    peak + (floor - peak) * t, 1-sqrt floor + (peak - floor) * (1 - sqrt(t)).
    """
    warmup = warmup_updates(schedule, total=total)
    if update < warmup:
        return peak * (update + 1) / warmup
    start = decay_start(schedule, total=total)
    if schedule.name in ("constant", "wsd") and update <= start:
        return peak
    floor = peak * schedule.min_lr_ratio
    done = (update - start) / max(1, total - 1 - start)
    shape = schedule.decay if schedule.name == "wsd" else schedule.name
    if shape == "cosine":
        return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
    if shape == "1-sqrt":
        return floor + (peak - floor) * (1 - math.sqrt(done))
    return peak + (floor - peak) * done


def length_findings(schedule: Schedule, *, total: int) -> list[Finding]:
    """What does not fit into `total` updates: the warm-up, the decay."""
    warmup, start = warmup_updates(schedule, total=total), decay_start(schedule, total=total)
    findings = []
    if warmup > total:
        message = f"{warmup} updates of warm-up, and the run has {total}: it never reaches optim.lr"
        findings.append(_too_long("warmup_steps", message, "a shorter warm-up, or a longer run"))
    elif schedule.name == "wsd" and start < max(0, warmup - 1):
        message = f"the decay begins at update {start} and the warm-up takes {warmup} of {total}"
        findings.append(_too_long("decay", message, "a shorter warm-up or decay"))
    if schedule.name == "wsd" and start >= total - 1:
        message = f"no update is left to decay: it begins at {start} of {total}"
        findings.append(_too_long("decay", message, "an earlier decay, or schedule=constant"))
    return findings


def _too_long(field: str, message: str, fix: str) -> Finding:
    return Finding(
        "schedule-length", message, file="params.yaml", field=f"schedule.{field}", fix=fix
    )
