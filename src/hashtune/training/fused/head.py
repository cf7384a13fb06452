"""Cross-entropy through a frozen head: the gradient of the states is ready after the forward.

With p the softmax of a position's logits, y its label and W the head, the gradient of its state is
(p - onehot(y)) W. So nothing of the size of the vocabulary is kept for the backward, no chunk is
computed again, and chunks can be small.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

CHUNK = 128


class HeadLoss(Function):  # type: ignore[misc]  # torch is untyped here
    """apply(states, targets, weight): summed loss, with its gradient, then entropy in nats and the
    number of right answers, without one.

    states: (N, H); targets: int64 (N); weight: (V, H), frozen, of the states' type. Losses are
    fp32 or wider.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, targets: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All three sums; keeps the gradient of the states, if it is needed."""
        gradients = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        wide = torch.promote_types(states.dtype, torch.float32)
        loss = entropy = states.new_zeros((), dtype=wide)
        correct = targets.new_zeros(())
        for begin in range(0, len(targets), CHUNK):
            chunk = slice(begin, begin + CHUNK)
            part = None if gradients is None else gradients[chunk]
            sums = _chunk(states[chunk], targets[chunk, None], weight, part)
            loss, entropy, correct = loss + sums[0], entropy + sums[1], correct + sums[2]
        ctx.save_for_backward(gradients)
        ctx.mark_non_differentiable(entropy, correct)
        return loss, entropy, correct

    @staticmethod
    def backward(ctx: Any, above: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """The kept gradient, times that of the loss."""
        (gradients,) = ctx.saved_tensors
        return gradients * above.to(gradients.dtype), None, None


def _chunk(
    states: Tensor, labels: Tensor, weight: Tensor, gradients: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of one chunk, and its gradient written into `gradients`. A function of its own, so that
    no two chunks of logits live at once."""
    logits = states @ weight.t()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    correct = (logits.argmax(-1, keepdim=True) == labels).sum()
    log_p = logits.log_softmax(-1)
    del logits
    loss = log_p.gather(1, labels).sum().neg()
    p = log_p.exp()
    entropy = torch.dot(p.view(-1), log_p.view(-1)).neg()
    if gradients is not None:
        # not scatter_add_, which on CUDA may have no deterministic kernel
        p[torch.arange(len(p), device=p.device), labels[:, 0]] -= 1.0
        gradients.copy_(p.to(states.dtype) @ weight)
    return loss, entropy, correct
