"""Learning-rate schedules: pure functions of the update number.

`update` counts optimizer updates that were made (0-based); a skipped step does not move it.
"""

import math

from hashtune.spec.schema import Schedule


def warmup_updates(schedule: Schedule, *, total: int) -> int:
    """Number of warm-up updates: the fraction of all updates, rounded half up."""
    return math.floor(schedule.warmup_fraction * total + 0.5)


def lr_at(update: int, *, peak: float, total: int, schedule: Schedule) -> float:
    """Learning rate of update number `update` of `total`.

    Warm-up is linear and reaches `peak` at its last update: peak * (update + 1) / warmup. After it,
    with t in [0, 1] the share of the remaining updates that is done (t = 1 at the last one):
    cosine floor + (peak - floor) * (1 + cos(pi * t)) / 2, linear peak + (floor - peak) * t.
    """
    warmup = warmup_updates(schedule, total=total)
    if update < warmup:
        return peak * (update + 1) / warmup
    floor = peak * schedule.min_lr_ratio
    done = (update - warmup) / max(1, total - 1 - warmup)
    if schedule.name == "cosine":
        return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
    if schedule.name == "linear":
        return peak + (floor - peak) * done
    return peak
