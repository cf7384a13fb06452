"""The training loop: plan in, adapter out; readable in one sitting.

Every step is one entry of the packing plan. The loop owns no file formats and no spec: it gets the
trainee, the plan and plain settings, and calls back for everything that leaves a trace.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.amp import GradScaler

from hashtune.errors import InputError, Stopped
from hashtune.records import Row
from hashtune.training import checkpoint as checkpoints
from hashtune.training.branch import Branch
from hashtune.training.checkpoint import Progress
from hashtune.training.curves import Curves
from hashtune.training.guard import check_eval_loss, check_skips, evaluations_since_best
from hashtune.training.journal import Aside, Journal
from hashtune.training.layouts import micro_batches
from hashtune.training.model import Trainee
from hashtune.training.noise import step_noise
from hashtune.training.optimizers import build_optimizer, optimizer_tensors, restore_optimizer
from hashtune.training.phases import Phase, Position
from hashtune.training.plan import Plan, Settings, step_without_targets, targets
from hashtune.training.randomness import restore_rng
from hashtune.training.rates import Meter, gauge_of
from hashtune.training.samples import Sampler
from hashtune.training.scaling import build_scaler, scaler_state
from hashtune.training.schedules import lr_at
from hashtune.training.signals import StopRequest
from hashtune.training.stable import keep
from hashtune.training.step import StepResult, evaluate_loss, train_step
from hashtune.training.trackers import Trackers
from hashtune.training.watch import Watcher


@dataclass(slots=True)
class Loop:
    """State of a training run while it runs."""

    trainee: Trainee
    plan: Plan
    settings: Settings
    curves_folder: Path
    stop: StopRequest
    say: Callable[[str], None]
    aside: Aside = field(default_factory=Aside)
    sampler: Sampler = field(default_factory=Sampler)
    trackers: Trackers | None = None
    branch: Branch | None = None
    position: Position = field(default_factory=Position)
    progress: Progress = field(default_factory=Progress)
    meter: Meter = field(default_factory=Meter)
    journal: Journal = field(init=False)
    scaler: GradScaler | None = None

    def run(self) -> Progress:
        """Train to the end of the plan, or raise Stopped with a checkpoint on disk."""
        self.trainee = replace(self.trainee, phase=self.position.enter)
        self.position.enter("resume")
        optimizer = build_optimizer(self.trainee.parameters, self.settings.optim)
        self._resume(optimizer)
        self.scaler = build_scaler(self.trainee, self.progress.scaler)
        self.meter.first_step = self.progress.step + 1
        total = len(self.plan.steps)
        self.journal = self._open_journal()
        while not self._over():
            self.journal.step(*self._step(optimizer))
            step = self.progress.step
            due = step % self.settings.checkpoint.eval_every_steps == 0
            if due:
                self._evaluate()
            if step == self.settings.checkpoint.keep_stable:  # before a checkpoint that is past it
                keep(self.settings, self.plan, self.progress, self._tensors(optimizer, best=True))
            if step == total and not due:  # a longer run does not evaluate here: no part of a state
                self._evaluate()
            at_end = self._over()
            regular = step % self.settings.checkpoint.every_steps == 0
            if self.stop or self.stop.checkpoint or at_end or regular:
                self.stop.checkpoint = False
                self._save(optimizer)
            if self.stop and not at_end:
                raise Stopped(
                    f"{self.stop.signal} after step {step} of {total}; `dvc repro` continues"
                )
        self.journal.curves.end()
        self._select()
        self._look_back()
        return self.progress

    def _look_back(self) -> None:
        """What the last updates did: the size of the weights, and without eval rows a loss."""
        if not self.progress.updates:
            return
        loss = None
        if not self.plan.eval_rows:
            rows, batch = [self.plan.rows[n] for n in self.plan.steps[0]], self.settings.batch
            self._begin("evaluation", rows)
            loss = evaluate_loss(self.trainee, rows, micro=batch.micro, layout=batch.layout).loss
            step, updates = self.progress.step, self.progress.updates
            check_eval_loss(loss, step=step, updates=updates, rows="first step's")
        sizes = [float(p.detach().abs().max()) for p in self.trainee.parameters.values()]
        self.journal.look_back(loss, largest=max(sizes))

    def _open_journal(self) -> Journal:
        gauge = gauge_of(self.trainee, peak_tflops=self.aside.peak_tflops)
        curves = Curves(self.curves_folder, self.progress.points, self.trackers)
        total = len(self.plan.steps)
        vocab = self.trainee.peft.get_base_model().config.get_text_config().vocab_size
        watcher = Watcher(vocab, self.settings.optim.grad_clip, total)
        journal = Journal(
            *(self.progress, self.meter, curves, gauge, total, self.say, self.aside, watcher),
            begins_after=self.branch.step if self.branch else 0,
        )
        journal.start()
        return journal

    def _over(self) -> bool:
        return self.progress.step == len(self.plan.steps) or self.stopped_early

    @property
    def stopped_early(self) -> bool:
        """Whether the eval loss has not improved for as long as the spec waits."""
        patience = self.settings.checkpoint.early_stop_patience
        return patience is not None and evaluations_since_best(self.progress.points) >= patience

    def _step(self, optimizer: torch.optim.Optimizer) -> tuple[StepResult, float]:
        numbers = self.plan.steps[self.progress.step]
        rows = [self.plan.rows[number] for number in numbers]
        self._begin("forward", rows, step=self.progress.step + 1)
        if not targets(rows):
            raise InputError(step_without_targets(self.progress.step + 1))
        lr = lr_at(
            self.progress.updates,
            peak=self.settings.optim.lr,
            total=len(self.plan.steps),
            schedule=self.settings.schedule,
        )
        started = time.monotonic()
        result = train_step(
            self.trainee,
            optimizer,
            rows,
            micro=self.settings.batch.micro,
            layout=self.settings.batch.layout,
            lr=lr,
            grad_clip=self.settings.optim.grad_clip,
            noise=step_noise(
                self.settings.optim, seed=self.settings.seed, step=self.progress.step + 1
            ),
            first=self.progress.updates == 0,
            scaler=self.scaler,
        )
        seconds = time.monotonic() - started
        self.meter.add(rows, trained_tokens=result.trained_tokens, seconds=seconds)
        self.progress.step += 1
        self.progress.updates += result.applied
        self.progress.scaler = scaler_state(self.scaler)
        if not result.applied:
            self._skipped(rows)
        return result, lr

    def _begin(self, phase: Phase, rows: Sequence[Row], *, step: int | None = None) -> None:
        """For who names the place of a failure: these rows are next."""
        batch = self.settings.batch
        groups = micro_batches(rows, batch.micro, batch.layout)
        self.position.take(phase, groups, step=self.progress.step if step is None else step)

    def _skipped(self, rows: Sequence[Row]) -> None:
        named = self.journal.skip(rows)
        allowed = self.settings.checkpoint.max_skipped_steps
        check_skips(
            self.progress.skipped, allowed=allowed, named=named, updates=self.progress.updates
        )

    def _evaluate(self) -> None:
        if not self.plan.eval_rows:
            return
        started = time.monotonic()
        batch = self.settings.batch
        self._begin("evaluation", self.plan.eval_rows)
        result = evaluate_loss(
            self.trainee, self.plan.eval_rows, micro=batch.micro, layout=batch.layout
        )
        step = self.progress.step
        check_eval_loss(result.loss, step=step, updates=self.progress.updates)
        samples = self.sampler.take(self.trainee, step=step)
        self.meter.eval_seconds += time.monotonic() - started
        patience = self.settings.checkpoint.early_stop_patience
        self.journal.evaluation(result, samples, patience=patience)
        best = self.progress.best_loss
        # before the first update there is no adapter to choose: it is refused as untrained
        if self.progress.updates and (best is None or result.loss < best):
            self.progress.best_loss, self.progress.best_step = result.loss, step
        if self.stopped_early:
            self.say(f"  no better eval loss than at step {self.progress.best_step}: training ends")

    def _tensors(
        self, optimizer: torch.optim.Optimizer, *, best: bool = False
    ) -> dict[str, Tensor]:
        """Adapter and moments; with `best` also the adapter of the best step, if another one."""
        tensors = {f"adapter.{n}": p.detach() for n, p in self.trainee.parameters.items()}
        moments = optimizer_tensors(optimizer, self.trainee.parameters)
        tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
        if best and self.adapter_step != self.progress.step:
            chosen = self._adapter_of(self.adapter_step)
            tensors |= {f"best.{n}": chosen[f"adapter.{n}"] for n in self.trainee.parameters}
        return tensors

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        self.position.enter("save")
        checkpoints.save(
            self.settings.run,
            self.progress,
            self._tensors(optimizer),
            identity=self.settings.identity,
            spec=self.settings.spec,
            code=self.settings.code,
        )
        checkpoints.prune(
            self.settings.run,
            keep_last=self.settings.checkpoint.keep_last,
            best_step=self.progress.best_step,
            written=self.progress.step,
        )

    def _load(self, folder: Path) -> checkpoints.Loaded:
        return checkpoints.load(
            folder,
            identity=self.settings.identity,
            parameters=list(self.trainee.parameters),
            steps=len(self.plan.steps),
            spec=self.settings.spec,
            code=self.settings.code,
        )

    def _adapter_of(self, step: int) -> Mapping[str, Tensor]:
        """The adapter after the best step, from its checkpoint or from the branch."""
        if self.branch is not None and step <= self.branch.step:
            return self.branch.best_adapter()
        return self._load(checkpoints.directory(self.settings.run, step)).tensors

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.trainee.parameters.items():
                parameter.copy_(tensors[f"adapter.{name}"])

    def _resume(self, optimizer: torch.optim.Optimizer) -> None:
        branched = self.branch.step if self.branch else 0
        best_after = branched if self.settings.checkpoint.select == "best" else None
        folder, notes = checkpoints.newest(self.settings.run, best_after=best_after)
        for note in notes:
            self.say(f"  {note}")
        if folder is not None:
            self._restore(self._load(folder), optimizer)
            self.say(f"  resuming after step {self.progress.step} from {folder.name}")
        elif self.branch is not None:
            self._restore(self.branch, optimizer)
            self.say(f"  branching after step {self.branch.step} from {self.branch.sha256[:16]}")
        else:
            self.say("  starting at step 1")

    def _restore(
        self, state: checkpoints.Loaded | Branch, optimizer: torch.optim.Optimizer
    ) -> None:
        self._put(state.tensors)
        moments = {
            name.removeprefix("optimizer."): tensor
            for name, tensor in state.tensors.items()
            if name.startswith("optimizer.")
        }
        restore_optimizer(optimizer, self.trainee.parameters, moments)
        restore_rng(state.rng, state.tensors)
        self.progress = deepcopy(state.progress)  # a branch may be begun with again

    @property
    def adapter_step(self) -> int:
        """The step whose weights become the adapter, by checkpoint.select."""
        best = self.progress.best_step
        if best is None or self.settings.checkpoint.select == "last":
            return self.progress.step
        return best

    def _select(self) -> None:
        """Put the chosen checkpoint's adapter into the model."""
        step = self.adapter_step
        if step != self.progress.step:
            self._put(self._adapter_of(step))
            self.say(f"  taking the best checkpoint, step {step}")
