"""What a decoder is made of, in plain sizes: linear modules, norms and bare parameters of its
blocks, embedding and head. families.py reads it from config.json, inventory.py from a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeVar

NormKind = Literal["rms", "layer"]
# What a linear module's input is: the block's first norm, attention's result, the norm before the
# MLP, the MLP's product, the shared expert's product
Reads = Literal["attention", "attended", "mlp", "product", "shared"]
Layers = tuple[int, ...] | None  # None: in every block


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear module of the blocks: y (outputs) = W (outputs x inputs) x + bias.

    `name` is its path inside a block; `layers` which blocks have it.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool
    reads: Reads = "attention"
    layers: Layers = None

    @property
    def weights(self) -> int:
        """Elements of W."""
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm over vectors of `width` elements, `vectors` of them for each token (heads, where it
    is one over each head), with `copies` weights of its own (StableLM: one for each head).
    `upcast`: its weight multiplies in fp32, before the result is cast back."""

    name: str
    width: int
    kind: NormKind = "rms"
    bias: bool = False
    vectors: int = 1
    copies: int = 1
    upcast: bool = False

    @property
    def parameters(self) -> int:
        """Elements of weight and bias."""
        return self.width * (1 + self.bias) * self.copies


@dataclass(frozen=True, slots=True)
class Bare:
    """A parameter that is no module's weight: experts (experts, rows, columns), a router (experts,
    columns), attention sinks (heads)."""

    name: str
    size: tuple[int, ...]
    layers: Layers = None

    @property
    def parameters(self) -> int:
        """Its elements."""
        return prod(self.size)


Part = TypeVar("Part", Linear, Bare)


@dataclass(frozen=True, slots=True)
class Experts:
    """Of a sparse block: how many there are, how many a token passes through, how wide one is, and
    how wide the shared expert is that all tokens pass through (0: none)."""

    count: int
    per_token: int
    width: int
    shared: int
    layers: Layers = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder. `prefix` is the path of its list of blocks, `others` the parameters
    outside blocks beside embedding, head and the norm behind the blocks (learned positions).

    `gated`: whether the MLP multiplies two projections (SwiGLU, GeGLU); `activation` its function
    as config.json names it. Soft caps: tanh over attention's scores, over logits. `window`: keys
    that a token attends over in a sliding window, 0 for none; no kernel modelled here makes memory
    depend on it. `rotary`: whether queries and keys are rotated,
    in whole, or in part and put together again. `parallel`: attention and MLP read the
    block's input side by side. `wide_softmax`: eager attention computes it in fp32.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    linears: tuple[Linear, ...]
    norms: tuple[Norm, ...]
    final_norm: Norm
    bare: tuple[Bare, ...] = ()
    experts: Experts | None = None
    head_bias: bool = False
    others: int = 0
    prefix: str = "model.layers"
    gated: bool = True
    activation: str = "silu"
    attention_softcap: bool = False
    logit_softcap: bool = False
    window: int = 0
    rotary: Literal["none", "whole", "part"] = "whole"
    parallel: bool = False
    wide_softmax: bool = True

    def count(self, part: Linear | Bare | Experts) -> int:
        """How many blocks have it."""
        return self.layers if part.layers is None else len(part.layers)

    @property
    def query(self) -> int:
        """Elements of all heads' queries of a token."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Elements of all heads' keys of a token, which are as many as of values."""
        return self.kv_heads * self.head_dim

    @property
    def linear_weights(self) -> int:
        """Weight elements of the blocks' linear modules: what quantisation compresses."""
        return sum(self.count(linear) * linear.weights for linear in self.linears)

    @property
    def linear_outputs(self) -> int:
        """Rows of all those weight matrices: int8 keeps a scale for each."""
        return sum(self.count(linear) * linear.outputs for linear in self.linears)

    @property
    def expert_weights(self) -> int:
        """Elements of all experts' stacked matrices."""
        return sum(self.count(bare) * bare.parameters for bare in self.stacks)

    @property
    def stacks(self) -> tuple[Bare, ...]:
        """The bare parameters that are matrices of experts."""
        return tuple(bare for bare in self.bare if len(bare.size) == 3)

    @property
    def parameters(self) -> int:
        """All parameters; a tied head counts once."""
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        head = self.vocab * self.head_bias
        biases = sum(self.count(linear) * linear.outputs for linear in self.linears if linear.bias)
        norms = self.layers * sum(norm.parameters for norm in self.norms)
        bare = sum(self.count(bare) * bare.parameters for bare in self.bare)
        outside = embeddings + head + self.final_norm.parameters + self.others
        return outside + self.linear_weights + biases + norms + bare

    @property
    def active_parameters(self) -> int:
        """Parameters that a token passes through: of experts only those it is sent to."""
        if self.experts is None:
            return self.parameters
        rest = self.experts.count - self.experts.per_token
        return self.parameters - self.expert_weights * rest // self.experts.count

    @property
    def largest_block(self) -> int:
        """Parameters of the largest block, which sharded training gathers at once."""
        return max(self.block_parameters(layer) for layer in range(self.layers))

    def block_parameters(self, layer: int) -> int:
        """Parameters of one block."""
        linears = sum(one.weights + one.outputs * one.bias for one in self.of(self.linears, layer))
        bare = sum(one.parameters for one in self.of(self.bare, layer))
        return linears + bare + sum(norm.parameters for norm in self.norms)

    def of(self, parts: Sequence[Part], layer: int) -> list[Part]:
        """Those of the parts that a block has."""
        return [part for part in parts if part.layers is None or layer in part.layers]
