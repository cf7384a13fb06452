"""What one training step keeps in memory, in plain settings."""

from dataclasses import dataclass
from typing import Literal

from hashtune.memory.adapters import (
    lora_matrices,
    lora_parameters,
    magnitude_vectors,
    prompt_matrix,
)
from hashtune.memory.layout import Shape
from hashtune.memory.routes import (
    WITH_AUTOCAST,
    Route,
    master_element,
    state_element,
    trained_element,
)
from hashtune.spec.activations import EVERY_NTH_BLOCK
from hashtune.spec.schema import OptimizerName, Variant

FP32 = 4
Stored = Literal["fp32", "bf16", "fp16"]
BYTES = {"fp32": FP32, "bf16": 2, "fp16": 2}

LossKind = Literal["chunked", "full", "split", "listed", "liger", "cut"]  # losses.py


@dataclass(frozen=True, slots=True)
class Workload:
    """What one training step keeps in memory, in plain settings.

    `longest_row` and `trained` are the worst row's tokens and targets; a micro-batch is `micro`
    rows padded to the longest (without padding, so many tokens at most). `masked` says that
    attention gets a mask (packed documents or padding), `by_document` that it is called for each
    document, `dropout` that it is above 0. `loss_chunk` is positions per chunk of the loss,
    `added_tokens` how many rows of embedding and head are trained. Of a prompt or prefix (`soft`)
    there are `virtual_tokens` before each row, and no targets. `offload`: inputs of checkpointed
    blocks wait in host memory. `fused`: kernels: fused. `full`: the base itself is trained; no
    targets and no quantization.

    Of other ways of training than hashtune's own:

    route                types of what is trained (routes.py); None: by `master_weights`
    stored               type of the frozen base, None: `precision`
    attention            kernel; eager keeps the scores, sdpa repeats keys under a mask
    loss                 kind of loss
    accumulates          gradients of earlier micro-batches are there while activations are
    accumulation_buffer  and are added up in a buffer of their own
    kbit_fp32            what is left of a quantised base is cast to fp32, as PEFT prepares it
    quantised_head       the head is quantised too; `quantised_experts`: stacks of experts are,
                         which bitsandbytes 0.50 leaves as they are
    bare_ranks           (name, rank) of experts' parameters that carry an adapter
    momentum             False: sgd without one, which keeps no state
    gathered             weights are put together from shards in the type of the products, so that
                         autocast makes no copies of them (sharding.py)
    """

    shape: Shape
    quantization: Literal["none", "int8", "nf4"]
    double_quant: bool
    precision: Stored
    optimizer: OptimizerName
    variant: Variant
    r: int
    targets: str | tuple[str, ...]
    dropout: bool
    micro: int
    longest_row: int
    trained: int
    masked: bool
    loss_chunk: int
    device: Literal["cpu", "cuda"]
    overhead_bytes: int
    added_tokens: int = 0
    by_document: bool = False
    soft: Literal["prompt", "prefix"] | None = None
    virtual_tokens: int = 0
    checkpointing: Literal["none", "selective", "full"] = "none"
    offload: bool = False
    full: bool = False
    master_weights: bool = True
    fused: bool = False
    route: Route | None = None
    stored: Stored | None = None
    attention: Literal["sdpa", "eager", "flash"] = "sdpa"
    loss: LossKind = "chunked"
    accumulates: bool = True
    accumulation_buffer: bool = False
    kbit_fp32: bool = True
    quantised_head: bool = False
    quantised_experts: bool = False
    bare_ranks: tuple[tuple[str, int], ...] = ()
    gathered: bool = False
    momentum: bool = True

    @property
    def way(self) -> Route:
        """The route by name."""
        if self.route is not None:
            return self.route
        return "fp32_autocast" if self.master_weights or self.full else "bf16_true"

    @property
    def autocast(self) -> bool:
        """Whether products cast their inputs: hashtune trains under autocast whatever the route."""
        return self.route is None or self.route in WITH_AUTOCAST

    @property
    def casts_up(self) -> bool:
        """Whether autocast computes norms, powers and losses in fp32 and keeps their inputs' casts:
        on CUDA; torch's list for CPUs has none of them (torch 2.13, autocast_mode.h)."""
        return self.autocast and self.element < FP32 and self.device == "cuda"

    @property
    def fused_linear(self) -> bool:
        """Whether LoRA's linear layers have the backward of training/fused/lora.py."""
        plain = self.quantization != "none" or self.dropout or self.variant == "dora"
        return self.fused and not plain and self.soft is None and not self.full

    @property
    def fused_norm(self) -> bool:
        """Whether norms have the backward of training/fused/norm.py, which knows frozen ones."""
        return self.fused and not self.full

    @property
    def fused_head(self) -> bool:
        """Whether the loss has the backward of training/fused/head.py."""
        lower = self.precision == "bf16" and self.quantization == "none"
        possible = self.fused and not self.full and not self.added_tokens
        return possible and (self.element == FP32 or lower)

    @property
    def keys(self) -> int:
        """Keys that the longest row attends over: its tokens and the virtual ones."""
        return self.longest_row + self.virtual_tokens

    @property
    def tokens(self) -> int:
        """Positions of a micro-batch, padding included; a prefix is keys and values only."""
        return self.micro * (self.longest_row if self.soft == "prefix" else self.keys)

    @property
    def element(self) -> int:
        """Bytes of an element of the base's computation."""
        return BYTES[self.precision]

    @property
    def stored_element(self) -> int:
        """Bytes of an element of the base as it is kept, where it is not quantised."""
        if self.full:
            return self.trained_element
        return BYTES[self.stored or self.precision]

    @property
    def used_element(self) -> int:
        """Bytes of an element of the base's weights and their gradients while they are used."""
        return self.element if self.gathered else self.stored_element

    @property
    def trained_element(self) -> int:
        """Bytes of an element of the trainable parameters and their gradients."""
        return trained_element(self.way, computed=self.element)

    @property
    def master_element(self) -> int:
        """Bytes of an element of the master copy, 0 for none."""
        return master_element(self.way, computed=self.element)

    @property
    def state_element(self) -> int:
        """Bytes of an element of the parameters that the optimizer sees."""
        return state_element(self.way, computed=self.element)

    @property
    def rest_element(self) -> int:
        """Bytes of an element of embeddings and norms, and of the head unless it is quantised."""
        if self.quantization != "none" and self.kbit_fp32:
            return FP32
        return self.stored_element

    @property
    def residual(self) -> int:
        """Bytes of an element between the blocks, which is of the embeddings' type."""
        return self.rest_element

    @property
    def recomputed_blocks(self) -> int:
        """Blocks that the backward computes again."""
        if self.checkpointing == "none":
            return 0
        return -(-self.shape.layers // EVERY_NTH_BLOCK[self.checkpointing])

    @property
    def matrices(self) -> list[tuple[int, int, int]]:
        """(rows, columns, how many) of the LoRA's."""
        return lora_matrices(self.shape, self.r, self.targets, self.bare_ranks)

    @property
    def lora_parameters(self) -> int:
        """Elements of those."""
        return lora_parameters(self.shape, self.r, self.targets, self.bare_ranks)

    @property
    def adapter_parameters(self) -> int:
        """Trainable parameters: LoRA with DoRA's vectors, and the rows of added tokens (those of a
        tied head once), or the virtual tokens; or all there are."""
        if self.full:
            return self.shape.parameters
        magnitudes = sum(length * count for length, count in self.magnitudes)
        rows = self.added_tokens * (1 if self.shape.tied else 2) * self.shape.hidden
        virtual = sum(rows * columns for rows, columns, _ in self.prompt)
        return self.lora_parameters + magnitudes + rows + virtual

    @property
    def prompt(self) -> list[tuple[int, int, int]]:
        """The one matrix of virtual tokens as (rows, columns, 1)."""
        if self.soft is None:
            return []
        return [(*prompt_matrix(self.shape, self.soft, self.virtual_tokens), 1)]

    @property
    def magnitudes(self) -> list[tuple[int, int]]:
        """DoRA's vectors as (length, how many)."""
        return magnitude_vectors(self.shape, self.targets) if self.variant == "dora" else []
