"""The base as it is stored, and what a quantised one unpacks while it is used."""

from hashtune.memory.workload import FP32, Workload

# NF4: 4 bits, an fp32 absmax per 64 weights; double quantisation stores the absmax in 8 bits with
# an fp32 constant per 256 of them: 4 + 8/64 + 32/(64*256) = 4.127 bits (Dettmers et al. 2023,
# QLoRA, arXiv 2305.14314, section 3).
NF4_BITS = {True: 4 + 8 / 64 + 32 / (64 * 256), False: 4 + 32 / 64}


def weight_bytes(work: Workload) -> int:
    """The base: parameters * bytes. Quantisation covers the blocks' linear weights, by default
    those only: embeddings, norms, biases, head and stacked experts are cast to fp32 by PEFT's
    prepare_model_for_kbit_training. int8 adds an fp32 scale per output row (Dettmers et al. 2022,
    arXiv 2208.07339)."""
    shape = work.shape
    if work.full or work.quantization == "none":
        return shape.parameters * work.stored_element
    coded = quantised_weights(work)
    rest = (shape.parameters - coded) * work.rest_element
    if work.quantization == "nf4":
        return round(coded * NF4_BITS[work.double_quant] / 8) + rest
    scales = shape.linear_outputs + shape.vocab * work.quantised_head
    return coded + FP32 * scales + rest


def quantised_weights(work: Workload) -> int:
    """Weight elements that are kept in 4 or 8 bits; a tied head is the embedding and never is."""
    shape = work.shape
    head = shape.vocab * shape.hidden if work.quantised_head and not shape.tied else 0
    experts = shape.expert_weights if work.quantised_experts else 0
    return shape.linear_weights + head + experts


def dequantisation_bytes(work: Workload) -> int:
    """Largest linear weight in `precision`: bitsandbytes unpacks one layer at a time, for each
    forward and backward product. int8 products leave an int32 result before scaling; the head is
    cast or unpacked for its products."""
    return unpacked_bytes(work) + head_cast_bytes(work)


def unpacked_bytes(work: Workload) -> int:
    """What is there of it while a block is computed."""
    shape = work.shape
    if work.quantization == "none":
        return 0
    sizes = [linear.weights for linear in shape.linears]
    if work.quantised_experts:
        sizes += [stack.parameters for stack in shape.stacks]
    largest = max(sizes) * work.element
    if work.quantization == "int8":
        largest += work.tokens * max(linear.outputs for linear in shape.linears) * 4
    return largest


def head_cast_bytes(work: Workload) -> int:
    """What is there of it while the loss is computed, kept for the head's backward: a frozen head
    of another type than its products."""
    coded = work.quantised_head and work.quantization != "none" and not work.shape.tied
    other = coded or (work.autocast and work.rest_element > work.element)
    if work.full or not other:
        return 0
    return work.shape.vocab * work.shape.hidden * work.element
