"""How much of a machine's peak the training uses, by the two usual measures.

    MFU  model FLOPs       what the mathematics needs: 6 per trained parameter and token, 4 per
                           frozen one, 12 L d T for attention scores
    HFU  hardware FLOPs    and what is computed twice to save memory: the forward of blocks whose
                           activations are recomputed, 2 per parameter in them and 4 d T a block

A parameter takes part in a multiplication and an addition per token in the forward, and in as many
for the gradient of its input in the backward; only a trained one needs them again for its own
gradient (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). Attention: scores and weighted values
are 4 L d T forward and twice that backward (Chowdhery et al. 2022, arXiv 2204.02311, appendix B,
where MFU is defined), without a discount for the causal half. N counts all parameters, embeddings
too. Pure arithmetic: no torch, no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TERA = 1e12
FORWARD = 2
TO_INPUTS = 2
TO_WEIGHTS = 2
ATTENTION_FORWARD = 4
ATTENTION = 3 * ATTENTION_FORWARD


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs: parameters by kind, layers, attention width (heads times their size);
    and what the backward computes again (activation checkpointing), in parameters and layers."""

    frozen: int
    trainable: int
    layers: int
    width: int
    again: int = 0
    layers_again: int = 0

    def model_flops(self, *, context: float) -> float:
        """FLOPs per token that training needs at a mean context of `context` tokens."""
        linear = (FORWARD + TO_INPUTS) * self.frozen
        linear += (FORWARD + TO_INPUTS + TO_WEIGHTS) * self.trainable
        return linear + ATTENTION * self.layers * self.width * context

    def hardware_flops(self, *, context: float) -> float:
        """FLOPs per token that are executed, those of a second forward included."""
        attention = ATTENTION_FORWARD * self.layers_again * self.width * context
        return self.model_flops(context=context) + FORWARD * self.again + attention

    @property
    def convention(self) -> str:
        """What is counted, for whoever compares figures."""
        frozen = "4 per frozen and " if self.frozen else ""
        return (
            f"FLOPs per token: {frozen}6 per trained parameter, 12 L d T of attention with T the "
            "mean length of a token's document; HFU adds the forward of recomputed blocks"
        )


def attention_sizes(
    config: Mapping[str, Any], *, head_dim: int | None = None
) -> tuple[int, int, int]:
    """Layers, attention heads and size of a head that a Hugging Face config.json describes.

    `head_dim` is what the model type's code takes where the file says nothing; without it a head
    is its share of hidden_size.
    """
    heads = int(config["num_attention_heads"])
    size = config.get("head_dim") or head_dim or config["hidden_size"] // heads
    return int(config["num_hidden_layers"]), heads, int(size)


def utilisation(flops_per_token: float, *, tokens_per_second: float, peak_tflops: float) -> float:
    """The share of the peak in use; above 1 the declared peak is too low."""
    return flops_per_token * tokens_per_second / (peak_tflops * TERA)
