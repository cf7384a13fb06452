"""How much of a machine's peak the training uses, by the two usual measures.

    MFU  model FLOPs       what the mathematics needs: 6 per trained parameter and token, 4 per
                           frozen one, 12 L d T for attention scores
    HFU  hardware FLOPs    and what is computed twice to save memory: a second forward, 2 per
                           parameter and 4 L d T

A parameter takes part in a multiplication and an addition per token in the forward, and in as many
for the gradient of its input in the backward; only a trained one needs them again for its own
gradient (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). Attention: scores and weighted values
are 4 L d T forward and twice that backward (Chowdhery et al. 2022, arXiv 2204.02311, appendix B,
where MFU is defined), without a discount for the causal half. N counts all parameters, embeddings
too. Pure arithmetic: no torch, no clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass

TERA = 1e12
FORWARD = 2
TO_INPUTS = 2
TO_WEIGHTS = 2
ATTENTION_FORWARD = 4
ATTENTION = 3 * ATTENTION_FORWARD


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs: parameters by kind, layers, attention width (heads times their size),
    and whether the backward computes the forward again (activation checkpointing)."""

    frozen: int
    trainable: int
    layers: int
    width: int
    recomputed: bool = False

    def model_flops(self, *, context: float) -> float:
        """FLOPs per token that training needs at a mean context of `context` tokens."""
        linear = (FORWARD + TO_INPUTS) * self.frozen
        linear += (FORWARD + TO_INPUTS + TO_WEIGHTS) * self.trainable
        return linear + ATTENTION * self.layers * self.width * context

    def hardware_flops(self, *, context: float) -> float:
        """FLOPs per token that are executed, the second forward included."""
        if not self.recomputed:
            return self.model_flops(context=context)
        again = FORWARD * (self.frozen + self.trainable)
        attention = ATTENTION_FORWARD * self.layers * self.width * context
        return self.model_flops(context=context) + again + attention

    @property
    def convention(self) -> str:
        """What is counted, for whoever compares figures."""
        frozen = "4 per frozen and " if self.frozen else ""
        return (
            f"FLOPs per token: {frozen}6 per trained parameter, 12 L d T of attention with T the "
            "mean length of a token's document; HFU adds a forward where activations are recomputed"
        )


def mean_context(lengths: Iterable[int]) -> float:
    """Mean length of the document that a token lies in; 0 without tokens."""
    kept = list(lengths)
    return sum(length * length for length in kept) / max(1, sum(kept))


def utilisation(flops_per_token: float, *, tokens_per_second: float, peak_tflops: float) -> float:
    """The share of the peak in use; above 1 the declared peak is too low."""
    return flops_per_token * tokens_per_second / (peak_tflops * TERA)
