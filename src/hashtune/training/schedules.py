"""Learning-rate schedules: pure functions of the update number.

`update` counts optimizer updates that were made (0-based); a skipped step does not move it.

    cosine, linear    /`-._    warm-up, then down to the floor at the last update
    constant          /-----   warm-up, then the peak
    wsd               /---\\    warm-up, stable at the peak, decay to the floor (Hu et al. 2024,
                               arXiv 2404.06395; 1-sqrt: Haegele et al. 2024, arXiv 2405.18392)
"""

import math

from hashtune.spec.lengths import decay_start, warmup_updates
from hashtune.spec.schema import Schedule


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
