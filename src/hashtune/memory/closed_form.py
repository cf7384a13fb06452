"""Level 1 of the memory plan: one formula per bucket, in bytes (GB is 1e9 bytes), no torch.

    weights        the frozen base as stored          dequantisation  one layer, unpacked for use
    adapter        its weights, fp32 or bf16          logits_loss     one chunk of logits
    gradients      of the adapter, in its type        activations     see activations.py
    master         0: the adapter itself, or none     overhead        context, fragmentation
    optimizer      its moments, see optimizer_state.py
    added_tokens   copies of embedding and head, where rows of them are trained
    update         of full fine-tuning: what its optimizer step needs beyond the activations' room

Allocated memory is the sum without overhead. It is an estimate from above: workspaces that are not
alive at the same moment are added up. The settings are those of training/: adapter and its state in
fp32, bf16 or fp16 by autocast, the head on trained positions only. Without master weights the
adapter is bf16. In full fine-tuning the weights are what is trained, in fp32, and there is no
adapter.
"""

from dataclasses import dataclass
from typing import Literal

from hashtune.memory.full import head_bytes, optimizer_parts
from hashtune.memory.optimizer_state import optimizer_bytes
from hashtune.memory.shapes import (
    Shape,
    lora_matrices,
    lora_parameters,
    magnitude_vectors,
    prompt_matrix,
)
from hashtune.spec.activations import EVERY_NTH_BLOCK
from hashtune.spec.schema import OptimizerName, Variant
from hashtune.training.utilisation import Work

FP32 = 4
BYTES = {"fp32": FP32, "bf16": 2, "fp16": 2}
# NF4: 4 bits, an fp32 absmax per 64 weights; double quantisation stores the absmax in 8 bits with
# an fp32 constant per 256 of them: 4 + 8/64 + 32/(64*256) = 4.127 bits (Dettmers et al. 2023,
# QLoRA, arXiv 2305.14314, section 3).
NF4_BITS = {True: 4 + 8 / 64 + 32 / (64 * 256), False: 4 + 32 / 64}

# CHUNK of training/loss.py and of training/fused/head.py, which import torch; a test compares them
LOSS_CHUNK = 512
HEAD_CHUNK = 128

Buckets = dict[str, int]


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
    """

    shape: Shape
    quantization: Literal["none", "int8", "nf4"]
    double_quant: bool
    precision: Literal["fp32", "bf16", "fp16"]
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
    def trained_element(self) -> int:
        """Bytes of an element of the trainable parameters and their gradients."""
        return FP32 if self.master_weights else self.element

    @property
    def residual(self) -> int:
        """Bytes of an element between the blocks: fp32 when quantised or trained in full, since
        embeddings are."""
        return FP32 if self.full or self.quantization != "none" else self.element

    @property
    def recomputed_blocks(self) -> int:
        """Blocks that the backward computes again."""
        if self.checkpointing == "none":
            return 0
        return -(-self.shape.layers // EVERY_NTH_BLOCK[self.checkpointing])

    @property
    def adapter_parameters(self) -> int:
        """Trainable parameters: LoRA with DoRA's vectors, and the rows of added tokens (those of a
        tied head once), or the virtual tokens; or all there are."""
        if self.full:
            return self.shape.parameters
        magnitudes = sum(length * count for length, count in self.magnitudes)
        rows = self.added_tokens * (1 if self.shape.tied else 2) * self.shape.hidden
        virtual = sum(rows * columns for rows, columns, _ in self.prompt)
        return lora_parameters(self.shape, self.r, self.targets) + magnitudes + rows + virtual

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


def weight_bytes(work: Workload) -> int:
    """The frozen base: parameters * bytes. Quantisation covers the blocks' linear weights only;
    PEFT's prepare_model_for_kbit_training casts what is left (embeddings, norms, biases, head)
    to fp32. int8 adds an fp32 scale per output row (Dettmers et al. 2022, arXiv 2208.07339)."""
    shape = work.shape
    if work.full:
        return shape.parameters * FP32
    if work.quantization == "none":
        return shape.parameters * work.element
    rest = (shape.parameters - shape.linear_weights) * FP32
    if work.quantization == "nf4":
        return round(shape.linear_weights * NF4_BITS[work.double_quant] / 8) + rest
    return shape.linear_weights + FP32 * shape.linear_outputs + rest


def dequantisation_bytes(work: Workload) -> int:
    """The largest linear weight in `precision`: bitsandbytes unpacks one layer at a time, for each
    forward and backward product. int8 products leave an int32 result before scaling; the fp32
    head is cast for bf16 products."""
    shape = work.shape
    if work.quantization == "none":
        return 0
    largest = max(linear.weights for linear in shape.linears) * work.element
    if work.quantization == "int8":
        largest += work.tokens * max(linear.outputs for linear in shape.linears) * 4
    if work.element < FP32:
        largest += shape.vocab * shape.hidden * work.element
    return largest


def added_token_bytes(work: Workload) -> int:
    """Where rows are trained, PEFT puts them into a copy of the whole matrix: the copy that the
    head's backward keeps, and the gradients of head and embedding before their rows are taken."""
    if not work.added_tokens:
        return 0
    return 3 * work.shape.vocab * work.shape.hidden * work.residual


def loss_bytes(work: Workload) -> int:
    """The chunked cross-entropy over trained positions, as training/loss.py computes it.

    One chunk of logits lives at a time, in fp32 in either precision: logits, log-softmax for the
    backward, and for the entropy another log-softmax, its exponential and their product. With
    more than one chunk each is recomputed in the backward, so one of the five is not kept. Added:
    the last hidden states and the trained ones among them.
    """
    trained = work.micro * work.trained
    states = (work.tokens + trained) * work.shape.hidden * work.residual
    head = head_bytes(work.shape, trained=trained, element=work.element) if work.full else 0
    return logits_bytes(work) + states + head


def logits_bytes(work: Workload) -> int:
    """One chunk of logits and what is computed from it; fused: log-softmax and probabilities, and
    the latter rounded for the product that gives the gradient of all states."""
    trained = work.micro * work.trained
    if work.fused_head:
        rounded = work.element if work.element < FP32 else 0
        chunk = min(HEAD_CHUNK, trained) * work.shape.vocab * (2 * FP32 + rounded)
        return chunk + trained * work.shape.hidden * work.element
    copies = 5 if trained <= work.loss_chunk else 4
    return min(work.loss_chunk, trained) * work.shape.vocab * copies * FP32


def static_bytes(work: Workload) -> Buckets:
    """What is there before a token arrives. An fp32 adapter is its own master copy, and a bf16 one
    has none; the weights of full fine-tuning, which has no adapter, are their own too."""
    adapter = work.adapter_parameters
    if work.full:
        return {
            "weights": weight_bytes(work),
            "gradients": adapter * FP32,
            "master": 0,
            "optimizer": optimizer_bytes(
                work.optimizer, *optimizer_parts(work.shape, work.optimizer)
            ),
        }
    matrices, vectors = lora_matrices(work.shape, work.r, work.targets), list(work.magnitudes)
    if work.optimizer == "muon":  # an embedding by its name, so AdamW's
        vectors += [(rows * columns, count) for rows, columns, count in work.prompt]
    else:
        matrices += work.prompt
    return {
        "weights": weight_bytes(work),
        "adapter": adapter * work.trained_element,
        "gradients": adapter * work.trained_element,
        "master": 0,
        "optimizer": optimizer_bytes(
            work.optimizer, matrices, vectors, element=work.trained_element
        ),
    }


def full_logits_bytes(*, tokens: int, vocab: int) -> Buckets:
    """What a loss without chunks would hold for `tokens` positions: fp32 logits and a bf16 copy.
    8,192 tokens * 248,320 words: 7.58 GiB and 3.79 GiB; the backward about doubles it."""
    return {"fp32": tokens * vocab * FP32, "bf16": tokens * vocab * 2}


def flops_per_token(
    shape: Shape, *, adapter: int, context: float, recomputed_blocks: int = 0, full: bool = False
) -> float:
    """FLOPs to train on one token, those of blocks that are computed again included, as training
    reckons its HFU: 4 for each frozen parameter and 6 for each trained one; `full`: all of them.

    `context` is the mean length of the document that a token lies in.
    """
    width = shape.heads * shape.head_dim
    beside = 0 if full else adapter
    again = (shape.linear_weights + beside) * recomputed_blocks // shape.layers
    work = Work(
        *(0 if full else shape.parameters, adapter, shape.layers, width),
        again=again,
        layers_again=recomputed_blocks,
    )
    return work.hardware_flops(context=context)
