"""Training steps by phase: the same code on fake tensors and on real ones.

`follow` is the engine, for any step: ours (`train_phases`) or another system's. On fake tensors
nothing is computed and no memory is taken; on real ones it measures.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hashtune.memory.rehearsal.assume import Assumed, assume
from hashtune.memory.rehearsal.build import fake_modules
from hashtune.memory.rehearsal.follow import Follow
from hashtune.memory.rehearsal.pretend import Pretend
from hashtune.memory.rehearsal.quantised import tensors_of
from hashtune.memory.rehearsal.table import Rehearsal, judge
from hashtune.records import Row
from hashtune.spec.schema import Batch, Optim
from hashtune.training.fused.attention import _above_diagonal
from hashtune.training.model import Trainee
from hashtune.training.noise import step_noise
from hashtune.training.optimizers import BUILDERS, build_optimizer, decay_groups, optimizer_tensors
from hashtune.training.phases import Phase
from hashtune.training.scaling import build_scaler
from hashtune.training.step import evaluate_loss, train_step

STEPS = 2  # the second one begins with the optimizer's state


@dataclass(slots=True)
class Stage:
    """What a step is given by `follow`: `phase("forward")` says what follows, `name(model)` whose
    modules are named in the tables, `adopt(tensors)` counts what was there before."""

    mode: Follow
    assumed: Assumed

    def phase(self, phase: Phase) -> None:
        """What follows belongs to this phase."""
        self.mode.phase(phase)

    def name(self, model: nn.Module) -> None:
        """Modules of this model are called by their names in it."""
        self.mode.name(model)

    def adopt(self, tensors: Iterable[Tensor], line: str = "loaded") -> None:
        """Count tensors that were there before; without data on fake tensors there are none."""
        self.mode.adopt(tensors, line)


def follow(
    step: Callable[[Stage], None], *, fake: bool = True, assumed: Assumed | None = None
) -> Rehearsal:
    """Run `step` and follow every storage that it makes.

    Args:
        step: builds what it needs, says its phases and steps; what it made dies with it.
        fake: on fake tensors, else on real ones.
        assumed: what is taken for granted of the device (assume.py); None is this CPU.

    Raises:
        whatever `step` raises.
    """
    assumed = assumed or assume("cpu")
    mode, pretend = Follow(opened=assumed.opened, assumed=assumed.workspaces), Pretend()
    stage = Stage(mode, assumed)
    with ExitStack() as stack:
        stack.enter_context(uncollected())
        if fake:
            from torch._subclasses.fake_tensor import FakeTensorMode

            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            _above_diagonal.cache_clear()
            stack.callback(_above_diagonal.cache_clear)  # what it keeps is fake
            stack.enter_context(pretend)
            stack.enter_context(fake_modules())
        stack.enter_context(mode)
        mode.phase("load")
        step(stage)
    return judge(mode.events, assumed=(*assumed.notes, *sorted(pretend.guesses)))


@contextmanager
def uncollected() -> Iterator[None]:
    """Storages die with their last reference meanwhile, at the same moment each time: when Python
    looks for cycles hangs on what else the process did."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Work:
    """What is trained on: one step's rows, rows to evaluate on, and the spec's settings."""

    rows: Sequence[Row]
    eval_rows: Sequence[Row]
    optim: Optim
    batch: Batch
    seed: int


def train_phases(trainee: Trainee, work: Work, stage: Stage) -> None:
    """Two steps as training takes them, an evaluation, and the tensors of a checkpoint.

    The step is hashtune.training.step.train_step itself. Of saving only the tensors are made:
    writing them takes host memory.
    """
    own = replace(trainee, phase=stage.phase)
    optimizer = optimizer_of(trainee, work.optim, stage.assumed)
    scaler = build_scaler(trainee, None)
    for number in range(1, STEPS + 1):
        train_step(
            *(own, optimizer, work.rows),
            micro=work.batch.micro,
            lr=work.optim.lr,
            grad_clip=work.optim.grad_clip,
            layout=work.batch.layout,
            noise=step_noise(work.optim, seed=work.seed, step=number),
            first=number == 1,
            scaler=scaler,
        )
    if work.eval_rows:
        stage.phase("evaluation")
        evaluate_loss(own, work.eval_rows, micro=work.batch.micro, layout=work.batch.layout)
    stage.phase("save")
    tensors = {name: parameter.detach() for name, parameter in trainee.parameters.items()}
    tensors |= optimizer_tensors(optimizer, trainee.parameters)


def measured(trainee: Trainee, work: Work, *, quantised: bool = False) -> Rehearsal:
    """The same phases on a real model on this CPU; what is loaded counts as there before.

    quantised: bitsandbytes is used, by the base or the optimizer.
    """

    def step(stage: Stage) -> None:
        model = trainee.peft.get_base_model()
        stage.adopt(tensors_of(model))
        stage.name(model)
        train_phases(trainee, work, stage)

    return follow(step, fake=False, assumed=assume("cpu", quantised=quantised, fake=False))


def optimizer_of(trainee: Trainee, optim: Optim, assumed: Assumed) -> torch.optim.Optimizer:
    """The optimizer of the spec; a paged one, which a CPU refuses, with its state unpaged."""
    if optim.name.startswith("paged"):
        groups = decay_groups(trainee.parameters, optim.weight_decay)
        optimizer = BUILDERS[optim.name](groups, optim)
        optimizer.is_paged = False
    else:
        optimizer = build_optimizer(trainee.parameters, optim)
    if assumed.foreach:
        for part in (optimizer, *getattr(optimizer, "parts", ())):
            for group in part.param_groups:
                if "foreach" in group and not group.get("fused"):
                    group["foreach"] = True
    return optimizer
