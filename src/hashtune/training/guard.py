"""Guards of a run: a few non-finite steps are skipped and named, more stop it; early stopping."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import Row

# no update was made: it is not the learning rate
UNTOUCHED = "check the base's weights and the precision (fp32 and bf16 hold what fp16 cannot)"
PlacesOf = Callable[[Collection[str]], Mapping[str, str]]  # example ids to "source:line"


def name_rows(rows: Sequence[Row], places: PlacesOf) -> str:
    """The rows by number, and their examples by id and, where known, source and line:
    "row 4: 5f0c (triage:12), 81aa; row 5: 77b2"."""
    known = places([example for row in rows for example in row.example_ids])
    named = []
    for row in rows:
        examples = [f"{e} ({known[e]})" if e in known else e for e in row.example_ids]
        named.append(f"row {row.row}: {', '.join(examples)}")
    return "; ".join(named)


def check_skips(skipped: Sequence[int], *, allowed: int, named: str, updates: int) -> None:
    """Raise InputError when more steps were skipped than allowed.

    Args:
        skipped: the 1-based steps skipped so far, the newest last.
        allowed: checkpoint.max_skipped_steps.
        named: what the newest skipped step saw, from `name_rows`.
        updates: how many were made so far. Without any the weights are those of the start, which
            no learning rate has touched.
    """
    if len(skipped) <= allowed:
        return
    message = f"{len(skipped)} steps with a non-finite loss or gradient ({list(skipped)})"
    look = f"look at these examples: `hashtune step {skipped[-1]}`"
    if updates:
        field, fix = "optim.lr", f"lower optim.lr, or {look}"
    else:
        message += ", and no step was finite"
        field, fix = "base_model", f"{UNTOUCHED}, or {look}"
    message += f"; the last one saw {named}"
    raise InputError(Finding("non-finite", message, field=field, fix=fix))


def check_updates(updates: int, *, steps: int) -> None:
    """Raise InputError for a run that skipped all of its steps: nothing was trained."""
    if steps and not updates:
        message = f"none of {steps} steps had a finite loss and gradient: nothing was trained"
        raise InputError(Finding("non-finite", message, field="base_model", fix=UNTOUCHED))


def check_eval_loss(loss: float, *, step: int, updates: int, rows: str = "eval") -> None:
    """Raise InputError for a loss that is not finite: held out it cannot rank checkpoints, and of
    trained `rows` the weights are ruined."""
    if math.isfinite(loss):
        return
    field, fix = "optim.lr", f"lower optim.lr, or look at the {rows} data"
    if not updates:
        field, fix = "base_model", f"{UNTOUCHED}, or look at the {rows} data"
    message = f"the {rows} loss after step {step} is {loss}"
    raise InputError(Finding("non-finite", message, field=field, fix=fix))


def check_weights(named: Iterable[tuple[str, Tensor]]) -> None:
    """Raise InputError for weights that hold NaN or infinity: no loss over them is finite.

    Args:
        named: name and tensor; codes of quantised ones (integers) are passed over. A sum shows
            both faults and needs no second tensor of the size.
    """
    broken = [name for name, tensor in named if not _whole(tensor.detach())]
    if broken:
        message = f"{len(broken)} tensors of the base hold NaN or infinity, first {broken[0]}"
        fix = "weights that are whole: download or convert them again, and pin those"
        raise InputError(Finding("non-finite", message, field="base_model", fix=fix))


def _whole(tensor: Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    return math.isfinite(float(tensor.sum(dtype=torch.float32)))


def evaluations_since_best(points: Sequence[Mapping[str, Any]]) -> int:
    """Evaluations after the one with the lowest eval loss (the first of equal ones).

    A function of the curves alone: a resumed run counts on where the stopped one was.
    """
    losses = [point["eval/loss"] for point in points if "eval/loss" in point]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0
