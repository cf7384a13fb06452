"""Cross-entropy over trained positions only, in chunks, without full fp32 logits.

The head runs on the hidden states that predict a trained token; more than CHUNK of them are
recomputed chunk by chunk in the backward pass, so at most CHUNK x vocabulary logits live at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hashtune.records import IGNORE_INDEX
from hashtune.training.fused.head import HeadLoss

CHUNK = 512
Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over trained tokens: `loss` float32 scalar with gradient; the others without.

    entropy in nats; correct counts tokens whose arg-max is the label.
    """

    loss: Tensor
    tokens: int
    correct: int
    entropy: float


def token_losses(
    hidden: Tensor, labels: Tensor, head: Head, frozen: Tensor | None = None
) -> LossSums:
    """Summed loss of the trained tokens.

    Args:
        hidden: (B, T, H), the last hidden states.
        labels: int64 (B, T), label at the token's own position; shifted here: the state at t
            predicts the label at t + 1.
        head: (N, H) -> (N, V) logits.
        frozen: the head's weight (V, H), where it is all of the head and not trained: then the
            gradient of the states is computed in the forward (fused/head.py).
    """
    targets = labels[:, 1:]
    trained = targets != IGNORE_INDEX
    states, targets = hidden[:, :-1][trained], targets[trained]
    if not len(targets):
        return LossSums(hidden.sum() * 0.0, 0, 0, 0.0)
    if frozen is not None:
        loss, entropy, correct = HeadLoss.apply(states.to(frozen.dtype), targets, frozen)
        return LossSums(loss, len(targets), int(correct), float(entropy))
    whole = len(targets) <= CHUNK
    parts = [
        _chunk(chunk, target, head)
        if whole
        else checkpoint(_chunk, chunk, target, head, use_reentrant=False)
        for chunk, target in zip(states.split(CHUNK), targets.split(CHUNK), strict=True)
    ]
    return LossSums(
        loss=torch.stack([part[0] for part in parts]).sum(),
        tokens=len(targets),
        correct=int(sum(int(part[1]) for part in parts)),
        entropy=float(sum(float(part[2]) for part in parts)),
    )


def _chunk(states: Tensor, targets: Tensor, head: Head) -> tuple[Tensor, Tensor, Tensor]:
    logits = head(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = functional.cross_entropy(logits, targets, reduction="sum")
    with torch.no_grad():
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum()
        correct = (logits.argmax(-1) == targets).sum()
    return loss, correct, entropy
