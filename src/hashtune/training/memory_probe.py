"""The memory plan's third level: real steps over the longest rows before the run's first step.

They are train's own (train_step, on the run's model, with an optimizer like the run's) over the
worst micro-batch that is planned (plan.worst_rows), and leave no trace: see untouched.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hashtune.training.held import gradient_bytes, model_tensors, static_bytes
from hashtune.training.live_bytes import LiveBytes, meter_of
from hashtune.training.model import Trainee
from hashtune.training.noise import step_noise
from hashtune.training.optimizers import build_optimizer
from hashtune.training.phases import Phase, SetPhase, nobody
from hashtune.training.plan import Plan, Settings, worst_rows
from hashtune.training.scaling import build_scaler
from hashtune.training.schedules import lr_at
from hashtune.training.step import train_step
from hashtune.training.untouched import untouched


@dataclass(frozen=True, slots=True)
class Measured:
    """What the steps took, in bytes.

    peak: the most alive at once, in `phases` by phase; reserved: what torch's allocator held, on
    CUDA. buckets: weights, adapter, optimizer, gradients, and `working`, the peak without them.
    steps, updates: how many were taken and applied; row, rows, tokens: of their micro-batch.
    """

    peak: int
    reserved: int | None
    phases: dict[Phase, int]
    buckets: dict[str, int]
    steps: int
    updates: int
    row: int
    rows: int
    tokens: int
    seconds: float

    @property
    def peak_phase(self) -> Phase:
        """When the most was alive; the first of equal ones."""
        return max(self.phases, key=lambda phase: self.phases[phase])


@dataclass(slots=True)
class Peaks:
    """Hears of phases and keeps the meter's peak in each, and the gradients' bytes at the end of
    the backward. `tell` hears of them too."""

    meter: LiveBytes
    trainee: Trainee
    tell: SetPhase
    phase: Phase | None = None
    phases: dict[Phase, int] = field(default_factory=dict)
    reserved: int | None = None
    gradients: int = 0

    def enter(self, phase: Phase) -> None:
        """A phase begins, and the one before it ends."""
        self.end()
        self.tell(phase)
        if phase == "optimizer":
            self.gradients = gradient_bytes(self.trainee)
        self.phase = phase

    def end(self) -> None:
        """The phase at hand ends."""
        if self.phase is not None:
            self.phases[self.phase] = max(self.phases.get(self.phase, 0), self.meter.peak)
            if self.meter.reserved is not None:
                self.reserved = max(self.reserved or 0, self.meter.reserved)
        self.meter.restart()


def measure_steps(
    trainee: Trainee,
    plan: Plan,
    settings: Settings,
    *,
    steps: int,
    stop: Callable[[], object] = lambda: False,
    tell: SetPhase = nobody,
) -> Measured | None:
    """Take the steps and put everything back; None where none is taken.

    Args:
        trainee: the model, without gradients.
        plan: the packing plan.
        settings: the loop's.
        steps: how many.
        stop: asked before each step whether to leave off.
        tell: hears each phase, for the words of a failure.

    Raises:
        RuntimeError: something was not put back.
    """
    started = time.monotonic()
    rows = worst_rows(plan.rows, settings.batch)
    with untouched(trainee, settings.run):
        optimizer = build_optimizer(trainee.parameters, settings.optim)
        scaler = build_scaler(trainee, None)
        lr = lr_at(0, peak=settings.optim.lr, total=len(plan.steps), schedule=settings.schedule)
        applied: list[bool] = []
        with meter_of(trainee.device, model_tensors(trainee)) as meter:
            peaks = Peaks(meter, trainee, tell)
            while len(applied) < steps and not stop():
                result = train_step(
                    *(replace(trainee, phase=peaks.enter), optimizer, rows),
                    micro=settings.batch.micro,
                    layout=settings.batch.layout,
                    lr=lr,
                    grad_clip=settings.optim.grad_clip,
                    noise=step_noise(settings.optim, seed=settings.seed, step=len(applied) + 1),
                    scaler=scaler,
                )
                applied.append(result.applied)
            peaks.end()
        static = static_bytes(trainee, optimizer)
    if not applied:
        return None
    peak, held = max(peaks.phases.values()), {**static, "gradients": peaks.gradients}
    return Measured(
        *(peak, peaks.reserved, peaks.phases),
        {**held, "working": max(0, peak - sum(held.values()))},
        *(len(applied), sum(applied), rows[0].row, settings.batch.micro),
        settings.batch.micro * len(rows[0].input_ids),
        time.monotonic() - started,
    )
