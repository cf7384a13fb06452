"""Hints about the length of a run: settings that are valid and do less than they say.

How many steps a run has is known after pack. Before, `duration.max_steps` is the most it may have,
and only what holds for every shorter run too is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hashtune.spec.lengths import decay_start
from hashtune.spec.ranges import RANGES
from hashtune.spec.schema import Checkpoint, Duration, Schedule, Spec

(WARMUP,) = (usual for usual in RANGES if usual.field == "schedule.warmup_fraction")
(DECAY,) = (usual for usual in RANGES if usual.field == "schedule.decay_fraction")


@dataclass(frozen=True, slots=True)
class Length:
    """Steps of a run. `exact`: those of its plan; else it may be shorter."""

    steps: int
    exact: bool

    def __str__(self) -> str:
        return ("" if self.exact else "at most ") + counted(self.steps)


def counted(steps: int) -> str:
    """A number of steps in words."""
    return "1 step" if steps == 1 else f"{steps} steps"


def length_of(duration: Duration, *, rows: int | None, rows_per_step: int) -> Length | None:
    """The steps of a run over so many packed rows; of unknown ones max_steps as a bound.

    Args:
        duration: of the spec.
        rows: rows of the training split, None before they are packed.
        rows_per_step: micro * grad_accum * world_size.
    """
    most = duration.max_steps
    if rows is None:
        return None if most is None else Length(most, exact=False)
    held = _held(duration, rows, rows_per_step)
    return Length(held if most is None else min(held, most), exact=True)


def _held(duration: Duration, rows: int, rows_per_step: int) -> int:
    return duration.epochs * -(-rows // rows_per_step)


def length_hints(spec: Spec, length: Length | None) -> Iterator[str]:
    """A line for each setting of schedule and checkpoint that does not fit this length well."""
    schedule, checkpoint = spec.schedule, spec.checkpoint
    yield from _idle_end(schedule, length)
    if length is not None:
        yield from _warmup(schedule, length)
        yield from _decay(schedule, length)
        yield from _patience(checkpoint, length)


def _idle_end(schedule: Schedule, length: Length | None) -> Iterator[str]:
    """The curve's last point is the last update's (training/schedules.py)."""
    if schedule.name == "constant" or schedule.min_lr_ratio > 0.0:
        return
    if length is not None and decay_start(schedule, total=length.steps) >= length.steps - 1:
        return  # it ends before anything decays
    yield (
        "schedule.min_lr_ratio 0: the last update is made at a rate of 0, so the last step trains "
        "nothing; a small ratio, such as 0.01, makes it count"
    )


def _warmup(schedule: Schedule, length: Length) -> Iterator[str]:
    """In steps: a fraction has a range of its own (ranges.py)."""
    steps = schedule.warmup_steps
    if steps is not None and steps > max(1, WARMUP.high * length.steps):
        share = f"{steps / length.steps:.0%}" + ("" if length.exact else " or more")
        yield (
            f"schedule.warmup_steps {steps} is {share} of {length}: usual is "
            f"{WARMUP.low:.0%} to {WARMUP.high:.0%} ({WARMUP.source})"
        )


def _decay(schedule: Schedule, length: Length) -> Iterator[str]:
    """In updates: the longer the run, the larger is the share that decays."""
    if schedule.name != "wsd" or schedule.decay_start is None:
        return
    updates = length.steps - 1 - schedule.decay_start
    share = updates / length.steps
    usual = f"usual is {DECAY.low:.0%} to {DECAY.high:.0%} ({DECAY.source})"
    if share < DECAY.low:
        yield (
            f"schedule.decay_start {schedule.decay_start} leaves {updates} of {length} to the "
            f"decay: {usual}"
        )
    elif length.exact and share > DECAY.high:
        yield (
            f"schedule.decay_start {schedule.decay_start} gives {updates} of {length} to the "
            f"decay: {usual}"
        )


def _patience(checkpoint: Checkpoint, length: Length) -> Iterator[str]:
    """The first evaluation is the best one at least; the end of a run has one of its own."""
    patience = checkpoint.early_stop_patience
    evaluations = -(-length.steps // checkpoint.eval_every_steps)
    if patience is not None and patience >= evaluations - 1:
        yield (
            f"checkpoint.early_stop_patience {patience} ends no run of {length}: it has "
            f"{evaluations} evaluations, one each {checkpoint.eval_every_steps} steps and at the "
            "end"
        )


def cut_hints(duration: Duration, *, rows: int, rows_per_step: int) -> Iterator[str]:
    """max_steps only cuts: a larger one than the epochs hold does nothing. Arguments: length_of."""
    if duration.max_steps is None:
        return
    held = _held(duration, rows, rows_per_step)
    if duration.max_steps > held:
        noun = "epoch holds" if duration.epochs == 1 else "epochs hold"
        yield (
            f"duration.max_steps {duration.max_steps} cuts nothing: {duration.epochs} {noun} "
            f"{counted(held)} ({rows} rows, {rows_per_step} a step), and a longer run takes more "
            "duration.epochs"
        )
