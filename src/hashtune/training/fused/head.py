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


class HeadLoss(Function):  # type: ignore[misc]
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
        loss, entropy = (states.new_zeros((), dtype=wide) for _ in range(2))
        correct = targets.new_zeros(())
        for begin in range(0, len(targets), CHUNK):
            part, label = states[begin : begin + CHUNK], targets[begin : begin + CHUNK, None]
            logits = (part @ weight.t()).to(wide)
            correct += (logits.argmax(-1, keepdim=True) == label).sum()
            log_p = logits.log_softmax(-1)
            del logits
            loss -= log_p.gather(1, label).sum()
            p = log_p.exp()
            entropy -= torch.dot(p.view(-1), log_p.view(-1))
            if gradients is not None:
                p.scatter_add_(1, label, p.new_full(label.shape, -1.0))
                gradients[begin : begin + CHUNK] = p.to(states.dtype) @ weight
        ctx.save_for_backward(gradients)
        ctx.mark_non_differentiable(entropy, correct)
        return loss, entropy, correct

    @staticmethod
    def backward(ctx: Any, above: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """The kept gradient, times that of the loss."""
        (gradients,) = ctx.saved_tensors
        return gradients * above.to(gradients.dtype), None, None
