"""A training step run again, in memory: nothing is written, and the bits are those of the run.

It starts from the nearest checkpoint before the step, else from the state that the run branched
from, else from the fresh adapter, and trains the steps in between again; so step N of a run that
left no checkpoint costs N steps. Dropout, noise, schedule and skipped steps are those of the run,
since the loop's own step makes them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training import checkpoint as checkpoints
from hashtune.training.adapter import CONFIG, WEIGHTS
from hashtune.training.batches import collate
from hashtune.training.intact import complete
from hashtune.training.loop import Loop
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee
from hashtune.training.optimizers import build_optimizer
from hashtune.training.proof import evaluating
from hashtune.training.scaling import build_scaler
from hashtune.training.step import StepResult

OTHER = "take the adapter of this spec and base, or the spec of this adapter"
SAMPLES = 3
SAME = ("peft_type", "lora_alpha", "use_rslora", "use_dora")  # change outputs, not shapes
Ticks = Callable[[range], Iterable[int]]


@dataclass(frozen=True, slots=True)
class RowLoss:
    """Means over trained tokens, without dropout and noise; NaN where none is trained."""

    row: int
    loss: float
    documents: list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Again:
    """What the step gave. `start`: the step of the checkpoint or of the branch, 0 for the fresh
    adapter; `branched`: it is the branch's."""

    start: int
    result: StepResult
    lr: float
    rows: list[RowLoss]
    branched: bool = False


@dataclass(slots=True)
class Rerun(Loop):
    """A loop that goes to one step and leaves no trace."""

    def again(self, number: int, ticks: Ticks, *, exact: bool = True) -> Again:
        """Run step `number`, from 1.

        Args:
            number: the step.
            ticks: iterates over the steps in between, and may say how far it is.
            exact: False takes the weights as they are in place of those of the run.

        Raises:
            InputError: the step lies before the branch that the run begins with.
        """
        optimizer = build_optimizer(self.trainee.parameters, self.settings.optim)
        if not exact:
            self.progress.step = self.progress.updates = number - 1
        else:
            self._start_before(number, optimizer)
        self.scaler = build_scaler(self.trainee, self.progress.scaler)
        start = self.progress.step
        for _ in ticks(range(start + 1, number)):
            self._step(optimizer)
        rows = [self.plan.rows[place] for place in self.plan.steps[number - 1]]
        seen = [document_losses(self.trainee, row) for row in rows]
        branched = exact and self.branch is not None and start == self.branch.step
        return Again(start, *self._step(optimizer), seen, branched)

    def _skipped(self, rows: Sequence[Row]) -> None:
        """The run was told of it, and may have ended there."""

    def _start_before(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        for step in reversed(checkpoints.steps(self.settings.run)):
            folder = checkpoints.directory(self.settings.run, step)
            if step < number and complete(folder) is None:
                self._restore(self._load(folder), optimizer)
                return
        if self.branch is not None:
            if number <= self.branch.step:
                raise InputError(_before_branch(number, self.branch.step))
            self._restore(self.branch, optimizer)


def _before_branch(number: int, step: int) -> Finding:
    message = f"step {number} was not run: this run branched after step {step} of another one"
    fix = "run it where that one was trained, or with --adapter DIR for a look at its rows"
    return Finding("before-branch", message, field="N", fix=fix)


def document_losses(trainee: Trainee, row: Row) -> RowLoss:
    """Mean loss of a row and of each of its documents; draws no random number."""
    batch = collate([row])
    with torch.no_grad(), evaluating(trainee), trainee.autocast():
        hidden = trainee.hidden(batch)
        labels = batch.labels.to(trainee.device)
        whole = token_losses(hidden, labels, trainee.head)
        documents = []
        for name, (start, end) in zip(
            row.example_ids, pairwise(accumulate(row.lengths, initial=0)), strict=True
        ):
            own = torch.full_like(labels, IGNORE_INDEX)
            own[:, start:end] = labels[:, start:end]
            sums = token_losses(hidden, own, trainee.head)
            documents.append((name, _mean(sums.loss, sums.tokens)))
    return RowLoss(row.row, _mean(whole.loss, whole.tokens), documents)


def _mean(loss: torch.Tensor, tokens: int) -> float:
    return float(loss) / tokens if tokens else float("nan")


def take_adapter(trainee: Trainee, folder: Path) -> None:
    """Put a saved adapter's tensors into the model.

    Raises:
        InputError: its names, shapes or scale are not those of the spec's adapter.
    """
    if trainee.full:
        trainee.peft.lay_over(folder)
        return
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    peft = trainee.peft
    tensors = load_file(folder / WEIGHTS)
    wanted = get_peft_model_state_dict(peft, save_embedding_layers=False)
    saved = writers.read_json(folder / CONFIG)
    spec = peft.peft_config["default"].to_dict()
    other = [name for name in SAME if saved.get(name) != getattr(v := spec.get(name), "value", v)]
    findings = _misfits(folder / WEIGHTS, tensors, wanted)
    if other:
        message = f"differs from the spec's adapter in {', '.join(other)}"
        findings.append(Finding("adapter-config", message, file=str(folder / CONFIG), fix=OTHER))
    if findings:
        raise InputError(findings)
    set_peft_model_state_dict(peft, tensors)


def _misfits(
    file: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> list[Finding]:
    shared = tensors.keys() & wanted.keys()
    faults = [
        ("missing", wanted.keys() - tensors.keys()),
        ("unexpected", tensors.keys() - wanted.keys()),
        ("shape", {name for name in shared if tensors[name].shape != wanted[name].shape}),
    ]
    return [
        Finding(
            f"adapter-{rule}",
            f"{len(names)} tensors, for instance {', '.join(sorted(names)[:SAMPLES])}",
            file=str(file),
            fix=OTHER,
        )
        for rule, names in faults
        if names
    ]
