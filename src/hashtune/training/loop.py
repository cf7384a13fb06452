"""The training loop: plan in, adapter out; readable in one sitting.

Every step is one entry of the packing plan. The loop owns no file formats and no spec: it gets the
trainee, the plan and plain settings, and calls back for everything that leaves a trace.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from hashtune.errors import Stopped
from hashtune.training import checkpoint as checkpoints
from hashtune.training.checkpoint import Progress
from hashtune.training.curves import Curves
from hashtune.training.guard import check_eval_loss, check_skips, evaluations_since_best
from hashtune.training.model import Trainee
from hashtune.training.noise import step_noise
from hashtune.training.optimizers import build_optimizer, optimizer_tensors, restore_optimizer
from hashtune.training.plan import Meter, Plan, Settings
from hashtune.training.randomness import restore_rng
from hashtune.training.schedules import lr_at
from hashtune.training.signals import StopRequest
from hashtune.training.step import StepResult, evaluate_loss, train_step
from hashtune.training.trackers import Trackers


@dataclass(slots=True)
class Loop:
    """State of a training run while it runs."""

    trainee: Trainee
    plan: Plan
    settings: Settings
    curves_folder: Path
    stop: StopRequest
    say: Callable[[str], None]
    trackers: Trackers | None = None
    progress: Progress = field(default_factory=Progress)
    meter: Meter = field(default_factory=Meter)

    def run(self) -> Progress:
        """Train to the end of the plan, or raise Stopped with a checkpoint on disk."""
        optimizer = build_optimizer(self.trainee.parameters, self.settings.optim)
        self._resume(optimizer)
        self.meter.first_step = self.progress.step + 1
        curves = Curves(self.curves_folder, self.progress.points, self.trackers)
        total = len(self.plan.steps)
        while not self._over():
            result, lr = self._step(optimizer)
            self._record(curves, result, lr)
            step = self.progress.step
            if step % self.settings.checkpoint.eval_every_steps == 0 or step == total:
                self._evaluate(curves)
            at_end = self._over()
            if self.stop or at_end or step % self.settings.checkpoint.every_steps == 0:
                self._save(optimizer)
            if self.stop and not at_end:
                raise Stopped(
                    f"{self.stop.signal} after step {step} of {total}; `dvc repro` continues"
                )
        curves.end()
        self._select()
        return self.progress

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
            lr=lr,
            grad_clip=self.settings.optim.grad_clip,
            noise=step_noise(
                self.settings.optim, seed=self.settings.seed, step=self.progress.step + 1
            ),
            first=self.progress.updates == 0,
        )
        self.meter.seconds += time.monotonic() - started
        self.meter.tokens += result.tokens
        self.meter.trained_tokens += result.trained_tokens
        self.meter.steps += 1
        self.progress.step += 1
        self.progress.updates += result.applied
        if not result.applied:
            self.progress.skipped.append(self.progress.step)
            ids = [example for row in rows for example in row.example_ids]
            self.say(f"  step {self.progress.step} skipped, not finite; examples {', '.join(ids)}")
            check_skips(
                self.progress.skipped,
                allowed=self.settings.checkpoint.max_skipped_steps,
                example_ids=ids,
            )
        return result, lr

    def _record(self, curves: Curves, result: StepResult, lr: float) -> None:
        step, total = self.progress.step, len(self.plan.steps)
        if result.applied:
            point = {
                "step": step,
                "train/loss": result.loss,
                "train/accuracy": result.accuracy,
                "train/entropy": result.entropy,
                "train/grad_norm": result.grad_norm,
                "train/lr": lr,
            }
            self.progress.points.append(point)
            curves.log(point)
        left = self.meter.seconds / self.meter.steps * (total - step)
        self.say(
            f"  step {step}/{total}  loss {result.loss:.4f}  lr {lr:.2e}  "
            f"grad norm {result.grad_norm:.2f}  "
            f"{self.meter.tokens / self.meter.seconds:.0f} tokens/s  about {left:.0f} s left"
        )

    def _evaluate(self, curves: Curves) -> None:
        if not self.plan.eval_rows:
            return
        started = time.monotonic()
        result = evaluate_loss(self.trainee, self.plan.eval_rows, micro=self.settings.batch.micro)
        self.meter.eval_seconds += time.monotonic() - started
        step = self.progress.step
        check_eval_loss(result.loss, step=step)
        point = {"step": step, "eval/loss": result.loss, "eval/accuracy": result.accuracy}
        self.progress.points.append(point)
        if self.settings.checkpoint.early_stop_patience is not None:
            point["eval/since_best"] = evaluations_since_best(self.progress.points)
        curves.log(point)
        if self.progress.best_loss is None or result.loss < self.progress.best_loss:
            self.progress.best_loss, self.progress.best_step = result.loss, step
        self.say(f"  step {step}  eval loss {result.loss:.4f}  accuracy {result.accuracy:.3f}")
        if self.stopped_early:
            self.say(f"  no better eval loss than at step {self.progress.best_step}: training ends")

    def _tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        adapter = {f"adapter.{n}": p.detach() for n, p in self.trainee.parameters.items()}
        moments = optimizer_tensors(optimizer, self.trainee.parameters)
        return adapter | {f"optimizer.{name}": tensor for name, tensor in moments.items()}

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        checkpoints.save(
            self.settings.run,
            self.progress,
            self._tensors(optimizer),
            identity=self.settings.identity,
            spec=self.settings.spec,
        )
        checkpoints.prune(
            self.settings.run,
            keep_last=self.settings.checkpoint.keep_last,
            best_step=self.progress.best_step,
            written=self.progress.step,
        )

    def _load(self, folder: Path) -> checkpoints.Loaded:
        loaded = checkpoints.load(
            folder, identity=self.settings.identity, parameters=list(self.trainee.parameters)
        )
        with torch.no_grad():
            for name, parameter in self.trainee.parameters.items():
                parameter.copy_(loaded.tensors[f"adapter.{name}"])
        return loaded

    def _resume(self, optimizer: torch.optim.Optimizer) -> None:
        folder, notes = checkpoints.newest(self.settings.run)
        for note in notes:
            self.say(f"  {note}")
        if folder is None:
            self.say("  starting at step 1")
            return
        self._restore(folder, optimizer)
        self.say(f"  resuming after step {self.progress.step} from {folder.name}")

    def _restore(self, folder: Path, optimizer: torch.optim.Optimizer) -> None:
        loaded = self._load(folder)
        moments = {
            name.removeprefix("optimizer."): tensor
            for name, tensor in loaded.tensors.items()
            if name.startswith("optimizer.")
        }
        restore_optimizer(optimizer, self.trainee.parameters, moments)
        restore_rng(loaded.rng, loaded.tensors)
        self.progress = loaded.progress

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
            self._load(checkpoints.directory(self.settings.run, step))
            self.say(f"  taking the best checkpoint, step {step}")
