"""Proof on the real model, before training: fused parts give the plain model's loss and gradients.

Of one real document, with every LoRA B set to small random numbers meanwhile: at its own zero the
gradients of A would be zero on both sides.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.batches import Batch, collate
from hashtune.training.documents import DOCUMENTS, FUSED
from hashtune.training.fused.attention import BLOCK
from hashtune.training.guard import UNTOUCHED
from hashtune.training.model import Trainee

TOKENS = BLOCK + 16  # attention takes a second block
# Relative: the loss, and the norm of each tensor's difference. In bf16 and fp16 both sides round:
# on SmolLM2-135M in bf16 a tensor's gradient is up to 0.17 from fp32's (bench/fused.py); a factor
# forgotten in a backward is 0.5 or more.
TOLERANCE = {"fp32": (1e-5, 1e-3), "bf16": (1e-2, 4e-1), "fp16": (2e-3, 5e-2)}
TOLERANCE["tf32"] = TOLERANCE["fp16"]  # as many bits
SPREAD = 0.02  # of the random B


@dataclass(frozen=True, slots=True)
class Difference:
    """Relative differences: of the loss, and of the tensor whose gradient differs most. `finite`:
    whether the plain modules' own loss and gradients are; else there is nothing to compare with."""

    loss: float
    gradient: float
    name: str
    finite: bool


def fused_counts(trainee: Trainee) -> dict[str, int]:
    """Modules by kind, and 1 for the head and for the attention."""
    attention = trainee.peft.get_base_model().config._attn_implementation
    return trainee.fused.counts | {"attention": int(attention == FUSED)}


def compare_fused(trainee: Trainee, row: Row) -> Difference:
    """Loss and gradients of the row's first_document on both ways. Parameters and random generators
    are left as they were; there are no gradients before it and none after it."""
    batch = collate([first_document(row)])
    used = [trainee.device] if trainee.device.type == "cuda" else []
    with torch.random.fork_rng(used), with_random_b(trainee):
        loss, fused = gradients_of(trainee, batch)
        with _plain(trainee) as plain:
            expected, own = gradients_of(plain, batch)
    off = {name: _difference(fused[name], own[name]) for name in own}
    name = max(off, key=lambda name: (math.isnan(off[name]), off[name]))  # NaN is the worst
    finite = math.isfinite(expected) and all(bool(g.isfinite().all()) for g in own.values())
    return Difference(abs(loss - expected) / abs(expected), off[name], name, finite)


def check_fused(difference: Difference, precision: str) -> None:
    """Raise InputError when fused parts do not give what the plain ones give, or these nothing
    finite."""
    if not difference.finite:
        message = "the loss or a gradient of the first document is NaN or infinite without any "
        message += "fused part"
        raise InputError(Finding("non-finite", message, field="base_model", fix=UNTOUCHED))
    loss, gradient = TOLERANCE[precision]
    # not >: catches NaN too
    if not (difference.loss <= loss and difference.gradient <= gradient):
        message = f"fused parts give other values on this base: loss off by {difference.loss:.1e}, "
        message += f"the gradient of {difference.name} by {difference.gradient:.1e} (allowed "
        message += f"{loss:.0e} and {gradient:.0e})"
        fix = "kernels=plain; please report the model"
        raise InputError(Finding("fused-differs", message, field="kernels", fix=fix))


def first_document(row: Row) -> Row:
    """The row's first document of two tokens or more, cut short, every token but the first one
    trained."""
    place = next(i for i, length in enumerate(row.lengths) if length > 1)
    start, length = sum(row.lengths[:place]), row.lengths[place]
    ids = row.input_ids[start : start + min(length, TOKENS)]
    labels = [IGNORE_INDEX, *ids[1:]]
    return Row(row.row, [row.example_ids[place]], [len(ids)], ids, labels)


def gradients_of(trainee: Trainee, batch: Batch) -> tuple[float, dict[str, Tensor]]:
    """Summed loss, and each gradient by name; none is left behind."""
    torch.manual_seed(0)  # the same dropout on both ways
    with trainee.autocast():
        loss = trainee.losses(batch).loss
    loss.backward()
    found = {}
    for name, parameter in trainee.parameters.items():
        if parameter.grad is not None:
            found[name], parameter.grad = parameter.grad, None
    return float(loss.detach()), found


def _difference(one: Tensor, other: Tensor) -> float:
    scale = float(other.norm())
    return float((one - other).norm()) / scale if scale else float(one.norm())


@contextmanager
def with_random_b(trainee: Trainee) -> Iterator[None]:
    """The same small random numbers in every LoRA B meanwhile."""
    generator = torch.Generator().manual_seed(0)
    kept = {n: p.detach().clone() for n, p in trainee.parameters.items() if "lora_B" in n}
    with torch.no_grad():
        for name, before in kept.items():
            noise = torch.randn(before.shape, generator=generator) * SPREAD
            trainee.parameters[name].add_(noise.to(before.device))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, before in kept.items():
                trainee.parameters[name].copy_(before)


@contextmanager
def _plain(trainee: Trainee) -> Iterator[Trainee]:
    """The same model with its modules' own forward and torch's attention."""
    base = trainee.peft.get_base_model()
    attention = base.config._attn_implementation
    if attention == FUSED:
        base.set_attn_implementation(DOCUMENTS)
    try:
        with trainee.fused.off():
            yield trainee.without_fused()
    finally:
        if attention == FUSED:
            base.set_attn_implementation(FUSED)
