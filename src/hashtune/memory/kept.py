"""What autograd keeps of each part of a block from forward to backward.

Read off the modelling code of transformers 5.24 and PEFT 0.21's LoRA layer, tensor by tensor; on
tiny models saved_tensors_hooks count the same bytes (tests/memory/test_activations.py,
test_kept.py). Korthikanti et al. 2022 (arXiv 2205.05198) count 34*s*b*h per block of a GPT in 16
bits; a frozen base keeps less, LoRA adds its own inputs.

    per token and block                      elements             kept for
    RMSNorm, in fp32                         width + 1            its backward
    LayerNorm, fp32 under autocast           width + 2            its backward
    norms of q and k, a factor for a head    q + kv + heads       their backward
    attention: q, k, v, out, log-sum-exp     2q + 2kv + heads     sdpa, flash; a mask repeats k, v
    eager attention: q, k, v and scores      3q + heads * keys    the softmax in fp32, and cast
    MLP: gate, its activation, up            3 * intermediate     activation, product
    MLP without a gate                       intermediate         activation
    each expert of a token, and its result   3 * width + hidden   the same, and its weight's
    each LoRA A: its input                   in                   gradient of A; see adapter_bytes
    each LoRA B: its input                   r                    gradient of B
    each DoRA: base's and LoRA's results     2 * out              gradient of the magnitude
    full: each linear's input, each norm's   in; hidden           gradients of their weights
    attention mask, if any                   longest row          sdpa's floats of a bool mask

With kernels: fused (training/fused/) a plain LoRA step keeps less:

    norms, q and k norms                     as above in the residual's type, one fp32 factor each
    attention by document on a CPU           q + 2kv          scores are computed again
    MLP                                      2 * intermediate their product is computed again
    each LoRA A                              the input once for modules that read one tensor
"""

from hashtune.memory.adapters import adapted_modules
from hashtune.memory.layout import Linear, Norm
from hashtune.memory.workload import FP32, Workload

INT64 = 8
# What an activation function keeps, in tensors of its input's size; others keep their input.
# transformers' NewGELUActivation is written out: input, tanh, 0.5 * input, 1 + tanh
WRITTEN_OUT = ("gelu_new", "gelu_fast", "gelu_python_tanh")


def norms_bytes(work: Workload) -> int:
    """All norms of one block, a token's share."""
    found = [norm_bytes(work, norm) for norm in work.shape.norms]
    if _share_input(work):
        hidden = [norm for norm in work.shape.norms if norm.width == work.shape.hidden]
        found[1] -= hidden[1].width * work.residual
    return sum(found)


def norm_bytes(work: Workload, norm: Norm) -> int:
    """RMSNorm computes in fp32 and keeps its fp32 input and one factor per vector; fused: the input
    as it is. Where its weight is trained, which is never fused, also what the weight multiplies.
    LayerNorm is one operation, which keeps its input, mean and factor; autocast casts it to fp32.
    """
    if norm.kind == "layer":
        element = FP32 if work.casts_up else _norm_element(work, norm)
        factor = element if work.device == "cpu" else FP32
        return norm.vectors * (norm.width * element + 2 * factor)
    element = _norm_element(work, norm) if work.fused_norm else FP32
    weighted = 0
    if work.full:
        weighted = norm.width * (FP32 if norm.upcast else _norm_element(work, norm))
    return norm.vectors * (norm.width * element + weighted + FP32)


def _norm_element(work: Workload, norm: Norm) -> int:
    """Bytes of an element of its input: the residual's, or a projection's."""
    of_residual = norm.width == work.shape.hidden and norm.vectors == 1
    return work.residual if of_residual else projected_element(work)


def _share_input(work: Workload) -> bool:
    """Whether two LayerNorms of a parallel block read, and keep, one tensor."""
    shape = work.shape
    layer = [norm for norm in shape.norms if norm.kind == "layer" and norm.width == shape.hidden]
    cast = work.casts_up and work.residual < FP32
    return shape.parallel and len(layer) == 2 and not cast


def normed_element(work: Workload) -> int:
    """Bytes of an element of what a norm of the residual gives: LayerNorm's is fp32 under autocast
    to a lower type."""
    layer = work.shape.norms and work.shape.norms[0].kind == "layer"
    return FP32 if layer and work.casts_up else work.residual


def projected_element(work: Workload) -> int:
    """Bytes of an element of a projection's result: Linear4bit's is of its input's type."""
    return normed_element(work) if work.quantization == "nf4" else work.element


def attention_bytes(work: Workload) -> int:
    """Attention of one block, a token's share."""
    shape = work.shape
    if work.attention == "eager" or _without_kernel(work):
        return _eager_bytes(work)
    if fused_attention(work):
        return (shape.query + 2 * shape.key) * work.element
    repeated = work.masked and work.attention == "sdpa"
    key_value = shape.query if repeated else shape.key
    mask = work.keys if repeated else 0
    kept = (2 * shape.query + 2 * key_value + mask) * work.element + shape.heads * FP32
    return kept + _fused_qkv_bytes(work)


def _without_kernel(work: Workload) -> bool:
    """Falcon gives sdpa one head of keys for all queries, which no fused kernel of torch 2.13
    takes: it computes the scores, in fp32."""
    shape = work.shape
    return shape.model_type == "falcon" and shape.kv_heads == 1 < shape.heads


def _fused_qkv_bytes(work: Workload) -> int:
    """The values are a view of what one projection for queries, keys and values gave, so that all
    of it stays; queries and keys are copies where they are rotated."""
    shape = work.shape
    fused = sum(linear.reads == "attention" for linear in shape.linears) == 1
    if not fused or shape.rotary == "none" or work.quantization == "nf4" or work.masked:
        return 0
    return (shape.query + shape.key) * work.element


def _eager_bytes(work: Workload) -> int:
    """Queries, repeated keys and values, and for each head and key the softmax, which is computed
    in fp32, and its cast; a soft cap keeps its tanh. 5*a*s in Korthikanti et al., where scores are
    in 16 bits and dropped out."""
    shape = work.shape
    wide = shape.wide_softmax or (work.attention != "eager" and _without_kernel(work))
    cast = work.element if work.element < FP32 and wide else 0
    softmax = FP32 if wide else work.element
    capped = work.element if shape.attention_softcap else 0
    scores = shape.heads * work.keys * (softmax + cast + capped)
    return 3 * shape.query * work.element + scores


def fused_attention(work: Workload) -> bool:
    """Whether a document's attention has the backward of training/fused/attention.py."""
    return work.fused and work.by_document and work.device == "cpu" and not work.dropout


def soft_bytes(work: Workload) -> int:
    """Beside the tokens, over all blocks: a prefix's keys and values. Below a prompt nothing is
    without gradient, so the first norm keeps its input too."""
    shape = work.shape
    if work.soft == "prefix":  # a mask repeats keys and values to q
        return work.micro * work.virtual_tokens * shape.layers * 2 * shape.query * work.element
    return work.tokens * (shape.hidden + 1) * FP32 if work.soft == "prompt" else 0


def mlp_bytes(work: Workload) -> int:
    """The MLPs of all blocks, a token's share."""
    shape = work.shape
    element = projected_element(work)
    dense = sum(shape.count(linear) for linear in shape.linears if linear.reads == "product")
    total = dense * _one_mlp(work, shape.intermediate, element)
    if shape.experts is not None:
        total += shape.count(shape.experts) * _sparse_bytes(work)
    return total


def _one_mlp(work: Workload, width: int, element: int) -> int:
    if work.shape.gated:
        return (2 if gated(work) else 3) * width * element
    if work.shape.activation not in WRITTEN_OUT:
        return width * element
    # autocast computes the power, and with it all but 0.5 * input, in fp32
    wide = FP32 if work.casts_up else element
    copy = wide if wide > element else 0  # the input, cast
    return width * (max(element, copy) + element + 2 * wide)


def _sparse_bytes(work: Workload) -> int:
    """A sparse block's MLP: for each expert of a token what a dense one keeps and the result that
    its weight scales, in the stored type, since grouped products take no part in autocast; the
    router's softmax; the shared expert, its result and gate."""
    shape, experts = work.shape, work.shape.experts
    assert experts is not None
    element = max(work.stored_element, 2)
    if work.quantization != "none":
        element = work.rest_element
    each = 3 * experts.width * element + shape.hidden * element + FP32 + 2 * INT64
    total = experts.per_token * each + experts.count * FP32
    if experts.shared:
        shared = projected_element(work)
        total += _one_mlp(work, experts.shared, shared) + (shape.hidden + 2) * shared
    return total


def gated(work: Workload) -> bool:
    """Whether the MLP's product is computed again, which its last layer's adapter does."""
    return work.fused_linear and "mlp.down_proj" in adapted_modules(work.shape, work.targets)


def adapter_bytes(work: Workload) -> int:
    """Inputs of LoRA A and B over all blocks, a token's share; of trained weights when `full`.

    Without dropout, modules that read one tensor of their own type share it, and o_proj's is
    attention's output. Otherwise each module keeps a copy of its own (dropout, or the cast to bf16
    from an fp32 adapter's or from the fp32 between quantised blocks, or the cast to fp32 where an
    fp32 adapter works without autocast), and dropout a mask as well.
    """
    if work.full:
        return _trained_inputs(work)
    counts = adapted_modules(work.shape, work.targets)
    kept = lora_element(work)
    per_element = kept + (_mask_bytes(work) if work.dropout else 0)
    total = sum(counts.values()) * work.r * kept + _stacks_inputs(work)
    for group in groups(work):
        adapted = [counts.get(linear.name, 0) for linear in group]
        width, attended = group[0].inputs, group[0].reads == "attended"
        if work.dropout or (_copies(work, group[0]) and not work.fused_linear):
            total += sum(adapted) * width * per_element
        elif group[0].reads == "product" and gated(work):
            continue
        elif not attended or _copied_result(work):
            total += max(adapted) * width * kept
    return total


def _copied_result(work: Workload) -> bool:
    """Whether the last projection of attention reads a copy of attention's result: put together
    from documents, or laid out as queries are that were put together of two parts; Falcon's is."""
    if work.shape.model_type == "falcon":
        return True
    return work.by_document or work.attention == "eager" or work.shape.rotary == "part"


def lora_element(work: Workload) -> int:
    """Bytes of an element of what LoRA's products read: without autocast the adapter's own."""
    return work.element if work.autocast else max(work.trained_element, work.element)


def _copies(work: Workload, linear: Linear) -> bool:
    """Whether each module casts its input for itself: up to the adapter's type, or down to that of
    the products."""
    if not work.autocast:
        own = work.element if linear.reads in ("attended", "product") else work.residual
        return own != work.trained_element
    if linear.reads == "attended":
        return work.element < work.trained_element
    return work.element < dropped_element(work, linear)


def _stacks_inputs(work: Workload) -> int:
    """Of adapted experts: the rows that go in, and the product that goes into the last ones."""
    experts = work.shape.experts
    if experts is None:
        return 0
    names = {name.rpartition(".")[2] for name, _ in work.bare_ranks}
    width = experts.width * ("down_proj" in names) + work.shape.hidden * ("gate_up_proj" in names)
    return work.shape.count(experts) * experts.per_token * width * work.stored_element


def groups(work: Workload) -> list[list[Linear]]:
    """Linear modules by the tensor that they read; one norm feeds both halves of a phi block."""
    shape = work.shape
    hidden = [norm for norm in shape.norms if norm.width == shape.hidden and norm.vectors == 1]
    found: dict[str, list[Linear]] = {}
    for linear in shape.linears:
        one = len(hidden) == 1 and linear.reads == "mlp"
        found.setdefault("attention" if one else linear.reads, []).append(linear)
    return list(found.values())


def _trained_inputs(work: Workload) -> int:
    """Inputs of all blocks' linear modules whose weights are trained, a token's share. Where a norm
    gives fp32 to products in a lower type each module that reads it casts it for itself; attention
    and the MLP's product are in the lower type already."""
    shape, total = work.shape, 0
    for group in groups(work):
        counts = [shape.count(linear) for linear in group]
        normed = group[0].reads in ("attention", "mlp")
        cast = normed and work.element < normed_element(work)
        if group[0].reads != "attended" or _copied_result(work):
            total += (sum(counts) if cast else max(counts)) * group[0].inputs * work.element
    if shape.experts is not None:
        each = shape.experts.per_token * (shape.hidden + shape.experts.width)
        router = 0 if any(linear.reads == "mlp" for linear in shape.linears) else shape.hidden
        total += shape.count(shape.experts) * (each + router) * work.stored_element
    return total


def dropped_element(work: Workload, linear: Linear) -> int:
    """Bytes of an element that goes into a LoRA's dropout: it is cast to the adapter's type."""
    layer = work.shape.norms and work.shape.norms[0].kind == "layer"
    if layer and work.casts_up and linear.reads in ("attention", "mlp"):
        return FP32
    return max(work.trained_element, work.residual)


def _mask_bytes(work: Workload) -> int:
    """Dropout keeps its mask in its input's type on a CPU, as bytes on CUDA."""
    return max(work.trained_element, work.residual) if work.device == "cpu" else 1


def dora_bytes(work: Workload) -> int:
    """What DoRA keeps beside LoRA: both results of each module, and three vectors as long as an
    output. With dropout it computes the base's result again from the dropped input, so that a
    quantised weight stays unpacked until the backward. Dropout in bf16 on the tiny model kept 2.5 %
    more than all formulas say; the step as a whole stays below its estimate."""
    if work.variant != "dora":
        return 0
    outputs = sum(length * count for length, count in work.magnitudes)
    base = work.residual if work.quantization == "nf4" and not work.dropout else work.element
    kept = work.tokens * outputs * (base + lora_element(work)) + 3 * outputs * FP32
    if work.dropout and work.quantization != "none":
        counts = adapted_modules(work.shape, work.targets)
        weights = sum(linear.weights * counts.get(linear.name, 0) for linear in work.shape.linears)
        kept += weights * work.element
    return kept


def cast_bytes(work: Workload) -> int:
    """Autocast's copies: of all LoRA matrices, which bf16 ones need not, of all linear weights that
    are trained, or of a frozen base kept in fp32, whose copies the backward needs. Beside them the
    merged weights that PEFT makes of adapted experts."""
    shape = work.shape
    merged = {name for name, _ in work.bare_ranks}
    stacks = sum(one.parameters * shape.count(one) for one in shape.stacks if one.name in merged)
    total = stacks * work.stored_element
    if not work.autocast or work.element >= FP32:
        return total
    if work.full:
        return total + shape.linear_weights * work.element
    if work.element < work.trained_element and not work.fused_linear:
        total += work.lora_parameters * work.element
    if work.quantization == "none" and work.element < work.stored_element:
        total += shape.linear_weights * work.element
    return total
