"""Activations of a step: what autograd keeps from forward to backward.

Read off the modelling code of transformers 5 (sdpa attention, RMSNorm, gated MLP) and PEFT's LoRA
layer, tensor by tensor; on tiny models saved_tensors_hooks count the same bytes to within 1 %
(tests/memory/test_activations.py), and a LoRA step of SmolLM2-135M in fp32 peaks 4.1 and 2.5 %
below the estimate (1 and 2 rows of 256 tokens: 0.562 and 1.125 GB beside the weights;
bench/activations.py). Korthikanti et al. 2022 (arXiv 2205.05198) count 34*s*b*h per block of a GPT
in 16 bits; a frozen base keeps less, LoRA adds its own inputs.

    per token and block                      elements             kept for
    norms (2; 4 in Gemma 3), fp32            hidden + 1           their backward
    q and k norms (Qwen 3, Gemma 3), fp32    q + kv + heads       their backward
    attention: q, k, v, out, log-sum-exp     2q + 2kv + heads     sdpa; a mask repeats k, v to q
    MLP: gate, its activation, up            3 * intermediate     activation, product
    each LoRA A: its input                   in                   gradient of A; see _adapter_bytes
    each LoRA B: its input                   r                    gradient of B
    each DoRA: base's and LoRA's results     2 * out              gradient of the magnitude
    full: each linear's input, each norm's   in; hidden           gradients of their weights
    attention mask, if any                   longest row          sdpa's floats of a bool mask

With kernels: fused (training/fused/) a plain LoRA step keeps less:

    norms, q and k norms                     as above in the residual's type, one fp32 factor each
    attention by document on a CPU           q + 2kv          scores are computed again
    MLP                                      2 * intermediate their product is computed again
    each LoRA A                              the input once for modules that read one tensor

A checkpointed block keeps its input only, hidden elements per token (Chen et al. 2016, arXiv
1604.06174, with segments of one block; 2*s*b*h bytes a layer in Korthikanti et al., section 5), in
host memory when offloaded; one such block at a time is whole while its backward runs.
"""

from hashtune.memory.closed_form import (
    FP32,
    Buckets,
    Workload,
    added_token_bytes,
    dequantisation_bytes,
    logits_bytes,
    loss_bytes,
    static_bytes,
)
from hashtune.memory.full import update_bytes
from hashtune.memory.shapes import adapted_modules, lora_parameters
from hashtune.spec.activations import EVERY_NTH_BLOCK

# Forward and backward temporaries beside what is kept: measured at 7 to 11 bytes per token and
# unit of the widest layer, fp32 and bf16; fused parts have no fp32 copies in bf16.
WORKSPACE_BYTES = 12
QUERY_BLOCK = 128  # BLOCK of training/fused/attention.py, which imports torch; a test compares them
INT64 = 8
SHARED_INPUTS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)


def saved_bytes(work: Workload) -> int:
    """Bytes kept between forward and backward for one micro-batch."""
    layers, again = work.shape.layers, work.recomputed_blocks
    kept = _blocks_bytes(work) * (layers - again) // layers + _checkpoint_bytes(work)
    if work.full:  # the last norm; the embedding's ids
        kept += work.tokens * ((2 * work.shape.hidden + 1) * FP32 + INT64)
    return kept + (_rotary_bytes(work) if again < layers else 0)


def activation_bytes(work: Workload) -> int:
    """What is kept, plus the workspace of one layer, a block that is computed again, and the bool
    mask itself. That block is whole after the loss is gone: what the two share is counted once."""
    widest = max(work.shape.intermediate, 2 * work.shape.hidden)
    mask = work.tokens * work.keys if work.masked else 0
    each = WORKSPACE_BYTES * work.element // FP32 if work.fused_linear else WORKSPACE_BYTES
    workspace = work.tokens * widest * each + _dora_workspace(work)
    workspace = max(workspace, query_block_bytes(work))
    if work.recomputed_blocks:
        workspace = max(0, workspace + _recomputed_bytes(work) - logits_bytes(work))
    return saved_bytes(work) + _not_dropped_bytes(work) + workspace + mask


def query_block_bytes(work: Workload) -> int:
    """What the backward of fused attention on a CPU has alive for one block of queries: their
    probabilities over all keys, and the gradients before and behind the softmax. The longest
    document is at most the longest row."""
    if not _fused_attention(work):
        return 0
    block = min(QUERY_BLOCK, work.longest_row)
    return 3 * work.shape.heads * block * work.longest_row * work.element


def _fused_attention(work: Workload) -> bool:
    """Whether a document's attention has the backward of training/fused/attention.py."""
    return work.fused and work.by_document and work.device == "cpu" and not work.dropout


def _blocks_bytes(work: Workload) -> int:
    """All blocks, none of them checkpointed. Below the first adapter nothing is kept, so the first
    block's norm is left out, and the last norm behind the blocks stands in for it; with `full`
    all count."""
    shape = work.shape
    blocks = work.tokens * (
        shape.layers * (_norm_bytes(work) + _attention_bytes(work) + _mlp_bytes(work))
        + _adapter_bytes(work)
    )
    return blocks + _cast_bytes(work) + _dora_bytes(work) + _soft_bytes(work)


def _checkpoint_bytes(work: Workload) -> int:
    """Inputs of the checkpointed blocks, the first one's included, and the last norm."""
    if not work.recomputed_blocks:
        return 0
    inputs = 0 if work.offload else work.recomputed_blocks * _input_bytes(work)
    last = 0 if work.full else work.tokens * _one_norm_bytes(work)
    return inputs + last


def _recomputed_bytes(work: Workload) -> int:
    """One checkpointed block in its backward, with its input when that was offloaded. When the last
    block is a kept one, it has freed as much before."""
    layers, nth = work.shape.layers, EVERY_NTH_BLOCK[work.checkpointing]
    last = (layers - 1) % nth == 0
    block = -(-_blocks_bytes(work) // layers) + _rotary_bytes(work) if last else 0
    return block + (_input_bytes(work) if work.offload else 0)


def _cast_bytes(work: Workload) -> int:
    """Autocast's copies of all LoRA matrices, which bf16 ones need not, or of all linear weights
    that are trained."""
    if work.full:
        return work.shape.linear_weights * work.element if work.element < FP32 else 0
    matrices = lora_parameters(work.shape, work.r, work.targets)
    cast = work.element < work.trained_element and not work.fused_linear
    return matrices * work.element if cast else 0


def _not_dropped_bytes(work: Workload) -> int:
    """What checkpointed blocks keep beside their inputs: autocast's copies to the end of the
    forward, and the inputs of int8 modules, which bitsandbytes 0.50 keeps as attributes of its
    autograd nodes, where checkpointing does not see them."""
    shape = work.shape
    kept = _cast_bytes(work) * work.recomputed_blocks // shape.layers
    if work.quantization == "int8":
        inputs = 2 * shape.hidden * work.residual
        inputs += (shape.heads * shape.head_dim + shape.intermediate) * work.element
        kept += work.recomputed_blocks * work.tokens * inputs
    return kept


def _input_bytes(work: Workload) -> int:
    return work.tokens * work.shape.hidden * work.residual


def _rotary_bytes(work: Workload) -> int:
    return work.tokens * 2 * work.shape.head_dim * work.residual


def estimate(work: Workload) -> Buckets:
    """All buckets in bytes; their sum is the peak to plan for."""
    added = {"added_tokens": added_token_bytes(work)} if work.added_tokens else {}
    step = {"activations": activation_bytes(work), "logits_loss": loss_bytes(work)}
    if work.full:  # its optimizer step comes when the activations are gone
        update = update_bytes(work.shape, work.optimizer, device=work.device)
        step["update"] = max(0, update - sum(step.values()))
    last = {"dequantisation": dequantisation_bytes(work), "overhead": work.overhead_bytes}
    return static_bytes(work) | added | step | last


def _norm_bytes(work: Workload) -> int:
    """RMSNorm computes in fp32 and keeps its fp32 input and one factor per vector; fused: the input
    as it is. Where its weight is trained, which is never fused, also what the weight multiplies."""
    shape = work.shape
    bytes_ = shape.block_norms * _one_norm_bytes(work)
    if shape.qk_norm:
        heads = shape.heads + shape.kv_heads
        element = work.element if work.fused_norm else FP32
        bytes_ += heads * (_norm_vectors(work) * shape.head_dim * element + FP32)
    return bytes_


def _one_norm_bytes(work: Workload) -> int:
    element = work.residual if work.fused_norm else FP32
    return _norm_vectors(work) * work.shape.hidden * element + FP32


def _norm_vectors(work: Workload) -> int:
    """Its input, and what its weight multiplies where that is trained."""
    return 2 if work.full else 1


def _attention_bytes(work: Workload) -> int:
    shape = work.shape
    query = shape.heads * shape.head_dim
    if _fused_attention(work):
        return (query + 2 * shape.kv_heads * shape.head_dim) * work.element
    key_value = query if work.masked else shape.kv_heads * shape.head_dim
    mask = work.keys if work.masked else 0
    return (2 * query + 2 * key_value + mask) * work.element + shape.heads * FP32


def _soft_bytes(work: Workload) -> int:
    """Beside the tokens: a prefix's keys and values. Below a prompt nothing is without gradient, so
    the first norm keeps its input too."""
    shape = work.shape
    if work.soft == "prefix":
        width = shape.heads * shape.head_dim  # a mask repeats them to q
        return work.micro * work.virtual_tokens * shape.layers * 2 * width * work.element
    return work.tokens * (shape.hidden + 1) * FP32 if work.soft == "prompt" else 0


def _mlp_bytes(work: Workload) -> int:
    """Linear4bit gives its result in its input's type, int8 in `precision`."""
    element = work.residual if work.quantization == "nf4" else work.element
    if _gated(work):
        return 2 * work.shape.intermediate * element
    return 3 * work.shape.intermediate * element


def _gated(work: Workload) -> bool:
    """Whether the MLP's product is computed again, which its last layer's adapter does."""
    return work.fused_linear and "mlp.down_proj" in adapted_modules(work.shape, work.targets)


def _adapter_bytes(work: Workload) -> int:
    """Inputs of LoRA A and B over all blocks, per token.

    Without dropout, modules that read one tensor of their own type share it, and o_proj's is
    attention's output. Otherwise each module keeps a copy of its own (dropout, or the cast to bf16
    from an fp32 adapter's or from the fp32 between quantised blocks), and dropout a mask as well.
    """
    shape = work.shape
    inputs = {linear.name: linear.inputs for linear in shape.linears}
    if work.full:
        return shape.layers * _trained_inputs(work, inputs)
    counts = adapted_modules(shape, work.targets)
    per_element = work.element + (_mask_bytes(work) if work.dropout else 0)
    total = sum(counts.values()) * work.r * work.element
    for group in SHARED_INPUTS:
        adapted = [counts.get(name, 0) for name in group]
        of_attention = group == ("self_attn.o_proj",)
        cast = work.element < (work.trained_element if of_attention else _dropped_element(work))
        if work.dropout or (cast and not work.fused_linear):
            total += sum(adapted) * inputs[group[0]] * per_element
        elif group == ("mlp.down_proj",) and _gated(work):
            continue
        elif not of_attention or work.by_document:
            total += max(adapted) * inputs[group[0]] * work.element
    return total


def _trained_inputs(work: Workload, inputs: dict[str, int]) -> int:
    """Inputs of the linear modules of a block whose weights are trained. Below fp32 each module
    that reads a norm's fp32 output casts it for itself; attention and the MLP's product are in the
    lower type already."""
    total = 0
    for group in SHARED_INPUTS:
        normed = len(group) > 1
        copies = len(group) if normed and work.element < FP32 else 1
        if group != ("self_attn.o_proj",) or work.by_document:
            total += copies * inputs[group[0]] * work.element
    return total


def _dropped_element(work: Workload) -> int:
    """Bytes of an element that goes into a LoRA's dropout: it is cast to the adapter's type."""
    return max(work.trained_element, work.residual)


def _mask_bytes(work: Workload) -> int:
    """Dropout keeps its mask in its input's type on a CPU, as bytes on CUDA."""
    return _dropped_element(work) if work.device == "cpu" else 1


def _dora_bytes(work: Workload) -> int:
    """What DoRA keeps beside LoRA: both results of each module, and three vectors as long as an
    output. With dropout it computes the base's result again from the dropped input, so that a
    quantised weight stays unpacked until the backward. Dropout in bf16 on the tiny model kept 2.5 %
    more than all formulas say; the step as a whole stays below its estimate."""
    if work.variant != "dora":
        return 0
    outputs = sum(length * count for length, count in work.magnitudes)
    base = work.residual if work.quantization == "nf4" and not work.dropout else work.element
    kept = work.tokens * outputs * (base + work.element) + 3 * outputs * FP32
    if work.dropout and work.quantization != "none":
        counts = adapted_modules(work.shape, work.targets)
        weights = sum(linear.weights * counts.get(linear.name, 0) for linear in work.shape.linears)
        kept += weights * work.element
    return kept


def _dora_workspace(work: Workload) -> int:
    """One module's norm: the identity, B times A, its scaled copy, the sum with the weight."""
    if work.variant != "dora":
        return 0
    counts = adapted_modules(work.shape, work.targets)
    return max(
        (linear.inputs**2 + 3 * linear.weights) * work.trained_element
        + work.tokens * linear.outputs * 2 * FP32
        for linear in work.shape.linears
        if linear.name in counts
    )
