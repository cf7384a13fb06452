"""One optimizer step, and the loss on held-out rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.amp import GradScaler

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Layout
from hashtune.training.gradients import check_gradients, clip_gradients
from hashtune.training.layouts import batch_of, micro_batches
from hashtune.training.model import Trainee
from hashtune.training.noise import Noise, on_embeddings
from hashtune.training.plan import eval_without_targets, targets
from hashtune.training.scaling import scaled
from hashtune.training.soft_prompts import check_all_parts


@dataclass(frozen=True, slots=True)
class StepResult:
    """Means over the step's trained tokens; `applied` is False when the step was skipped."""

    loss: float
    entropy: float
    accuracy: float
    grad_norm: float
    trained_tokens: int
    tokens: int
    applied: bool


def train_step(
    trainee: Trainee,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    *,
    micro: int,
    lr: float,
    grad_clip: float,
    layout: Layout = "rows",
    noise: Noise | None = None,
    first: bool = False,
    scaler: GradScaler | None = None,
) -> StepResult:
    """Forward, backward and update on one step's rows.

    The loss is the sum over all micro-batches divided by the trained tokens of the whole step, so
    the split into micro-batches and their layout change nothing but the order of sums. A non-finite
    loss or gradient norm, or no trained token at all, leaves parameters and optimizer untouched.
    `first`: no update was made yet, and each tensor must have a gradient (check_gradients).
    `scaler`: of fp16, the gradients are unscaled before they are measured and clipped; an overflow
    lowers it.
    """
    trained = targets(rows)
    total = max(1, trained)
    loss = entropy = 0.0
    correct = tokens = 0
    for group in micro_batches(rows, micro, layout):
        batch = batch_of(group, layout)
        with trainee.autocast(), on_embeddings(trainee, group, noise):
            sums = trainee.losses(batch)
        scaled(sums.loss / total, scaler).backward()
        loss += float(sums.loss.detach()) / total
        entropy += sums.entropy / total
        correct += sums.correct
        tokens += batch.tokens
    trainee.phase("optimizer")
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = clip_gradients(trainee.parameters.values(), grad_clip)
    applied = trained > 0 and math.isfinite(norm) and math.isfinite(loss)
    if applied:
        if first:
            check_gradients(trainee.parameters, rows, full=trainee.full)
            if trainee.initial:
                gradients = {n: p.grad for n, p in trainee.parameters.items() if p.grad is not None}
                check_all_parts(trainee.peft, gradients, what="have a gradient of zero")
        for group_settings in optimizer.param_groups:
            group_settings["lr"] = lr
        optimizer.step()
    if scaler is not None:
        scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(loss, entropy, correct / total, norm, trained, tokens, applied)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Mean loss (nats) and accuracy over the trained tokens of all rows."""

    loss: float
    accuracy: float


def evaluate_loss(
    trainee: Trainee, rows: Sequence[Row], *, micro: int, layout: Layout = "rows"
) -> EvalResult:
    """Held-out loss; sums only, so memory does not grow with the number of rows.

    Dropout is off meanwhile and no random number is drawn. Rows without a trained token add
    nothing to either sum.

    Raises:
        InputError: no row has a trained token. A loss of 0 would be the best of all.
    """
    if not targets(rows):
        raise InputError(eval_without_targets())
    trainee.peft.eval()
    loss, tokens, correct = 0.0, 0, 0
    with torch.no_grad():
        for group in micro_batches(rows, micro, layout):
            batch = batch_of(group, layout)
            with trainee.autocast():
                sums = trainee.losses(batch)
            loss += float(sums.loss)
            tokens += sums.tokens
            correct += sums.correct
    trainee.peft.train()
    return EvalResult(loss / tokens, correct / tokens)
