"""The gradients of a step: clipped by their norm, and after the first backward every trainable
tensor has one, since a cut graph trains nothing."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row

SAMPLES = 3


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale the gradients to a common norm of at most max_norm; the norm before, in fp32.

    As torch.nn.utils.clip_grad_norm_, which gives the norm of bf16 gradients in bf16.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    fp32 = torch.float32
    exact = [
        p.grad if p.dtype == fp32 else torch.linalg.vector_norm(p.grad, dtype=fp32) for p in trained
    ]
    norm = torch.nn.utils.get_total_norm(exact)
    torch.nn.utils.clip_grads_with_norm_(trained, max_norm, norm)
    return float(norm)


def check_gradients(
    parameters: Mapping[str, nn.Parameter], rows: Sequence[Row], *, full: bool = False
) -> None:
    """Raise InputError naming trainable tensors that the loss of these rows does not reach.

    Those without a gradient, and each lora_B whose gradient is zero; each weight, when the base
    itself is trained (`full`). A zero says nothing of a
    lora_A, whose gradient holds B as a factor and B begins at zero; nor where every trained token
    sees one token only, since attention over one key has no gradient for its query. That the
    gradients are finite is the step's own check, by their norm.
    """
    none = [name for name, parameter in parameters.items() if parameter.grad is None]
    zero = [
        name
        for name, parameter in parameters.items()
        if (full or "lora_B" in name) and parameter.grad is not None and not parameter.grad.any()
    ]
    faults = [("no gradient", none), ("a gradient of zero", zero if _sees_two(rows) else [])]
    findings = [
        Finding(
            "no-gradient",
            f"{len(names)} of {len(parameters)} trainable tensors have {what} after the first "
            f"backward: {', '.join(names[:SAMPLES])}",
            field="method.type" if full else "method.targets",
            fix="method=lora with method.targets that the loss reaches"
            if full
            else "leave out the modules that the loss does not reach",
        )
        for what, names in faults
        if names
    ]
    if findings:
        raise InputError(findings)


def _sees_two(rows: Sequence[Row]) -> bool:
    """Whether some trained token has two tokens of its document before it."""
    for row in rows:
        start = 0
        for length in row.lengths:
            if any(label != IGNORE_INDEX for label in row.labels[start + 2 : start + length]):
                return True
            start += length
    return False
