"""What the backward of one block needs beside what the forward kept: gradients on their way.

MLP        three tensors as wide as it: gradient by the base's weight, by the adapter's, and
           their sum; or those of the product, of the activation and of the other factor. An
           adapter of another type casts its own up and down
attention  gradients of queries, keys, values and result; eager: of the scores in fp32, before
           and behind the softmax, and their cast; fused on a CPU: those of a block of queries
norm       four vectors in fp32
residual   its gradient, and the one that comes out of the half in work
full       one weight's gradient before it is added, and its cast
"""

from hashtune.memory.adapters import adapted_modules
from hashtune.memory.kept import fused_attention, gated, projected_element
from hashtune.memory.workload import FP32, Workload

QUERY_BLOCK = 128  # BLOCK of training/fused/attention.py, which imports torch; a test compares them


def block_workspace(work: Workload) -> int:
    """Bytes of the largest of these at one moment; DoRA's is of the forward."""
    shape = work.shape
    attention = work.tokens * _attention(work) + query_block_bytes(work)
    widest = max(work.tokens * max(_mlp(work), 4 * shape.hidden * FP32), attention)
    residual = work.tokens * shape.hidden * work.residual
    return residual + max(widest + _one_gradient(work), _dora(work))


def query_block_bytes(work: Workload) -> int:
    """What the backward of fused attention on a CPU has alive for one block of queries: their
    probabilities over all keys, and the gradients before and behind the softmax. The longest
    document is at most the longest row."""
    if not fused_attention(work):
        return 0
    block = min(QUERY_BLOCK, work.longest_row)
    return 3 * work.shape.heads * block * work.longest_row * work.element


def _mlp(work: Workload) -> int:
    shape, element = work.shape, projected_element(work)
    kept = work.full or any(
        linear.reads == "product" and linear.name in adapted_modules(shape, work.targets)
        for linear in shape.linears
    )
    # where the product was kept, it goes when the first of the three gradients is there
    own = max(work.trained_element, element) if kept and not work.full else element
    each = element + own if kept else 3 * element
    if kept and work.dropout:
        each += own
    if gated(work):  # the activation is computed again as well
        each = 4 * element
    dense = any(linear.reads == "product" for linear in shape.linears)
    found = shape.intermediate * each if dense else 0
    if shape.experts is not None:
        rows = 2 * shape.hidden + 3 * shape.experts.width
        found = max(found, shape.experts.per_token * rows * work.stored_element)
    return found


def _attention(work: Workload) -> int:
    shape = work.shape
    found = (2 * shape.query + 2 * shape.key) * work.element
    if work.attention == "eager":
        found += shape.heads * work.keys * (2 * FP32 + work.element)
    return found


def _dora(work: Workload) -> int:
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


def _one_gradient(work: Workload) -> int:
    """Of the largest weight that is trained, and of merged experts."""
    shape = work.shape
    merged = {name for name, _ in work.bare_ranks}
    sizes = [linear.weights for linear in shape.linears] if work.full else []
    sizes += [one.parameters for one in shape.stacks if work.full or one.name in merged]
    cast = work.stored_element if work.element < work.stored_element else 0
    return max(sizes, default=0) * (work.element + cast)
