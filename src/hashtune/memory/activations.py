"""Activations of a step, and the step's peak: what is alive at the worst moment.

    loss       all that the forward kept, and the loss; of several chunks once more, without what
               autocast had cached and with the head's cast, which its backward keeps
    backward   all that the forward kept, and the workspace of the last block, computed again when
               it is checkpointed; the loss is gone
    first      of one micro-batch a step: the first block, when nearly all gradients are there
    embedding  of full fine-tuning: its gradient comes last, beside that of a tied head, which has
               waited for it, and their sum
    update     of full fine-tuning: activations are gone, gradients and moments are there

A checkpointed block keeps its input only, hidden elements per token (Chen et al. 2016, arXiv
1604.06174, with segments of one block; 2*s*b*h bytes a layer in Korthikanti et al., section 5), in
host memory when offloaded; one such block at a time is whole while its backward runs. What a block
keeps otherwise: kept.py.
"""

from hashtune.memory.closed_form import Buckets, added_token_bytes, static_bytes
from hashtune.memory.full import update_bytes
from hashtune.memory.kept import (
    INT64,
    adapter_bytes,
    attention_bytes,
    cast_bytes,
    dora_bytes,
    mlp_bytes,
    norm_bytes,
    norms_bytes,
    soft_bytes,
)
from hashtune.memory.losses import (
    chunk_again_bytes,
    embedding,
    loss_bytes,
    several_chunks,
    waiting_head,
)
from hashtune.memory.weights import head_cast_bytes, unpacked_bytes
from hashtune.memory.workload import FP32, Workload
from hashtune.memory.workspace import block_workspace
from hashtune.spec.activations import EVERY_NTH_BLOCK


def saved_bytes(work: Workload) -> int:
    """Bytes kept between forward and backward for one micro-batch."""
    layers, again = work.shape.layers, work.recomputed_blocks
    kept = _blocks_bytes(work) * (layers - again) // layers + _checkpoint_bytes(work)
    if work.full:  # the last norm; the embedding's ids
        kept += work.tokens * (norm_bytes(work, work.shape.final_norm) + INT64)
    elif not again and work.shape.norms[:1] and work.shape.norms[0].name.startswith("post"):
        kept += work.tokens * norm_bytes(work, work.shape.final_norm)  # the first block's stays
    return kept + (_rotary_bytes(work) if again < layers else 0)


def activation_bytes(work: Workload) -> int:
    """The activations' share of the peak."""
    return estimate(work)["activations"]


def phases(work: Workload) -> dict[str, Buckets]:
    """The buckets at each of the moments above; all of them name the same buckets."""
    kept, states = _held_bytes(work), work.tokens * work.shape.hidden * work.residual
    loss = {"activations": kept + _cached_bytes(work), "logits_loss": loss_bytes(work)}
    head = {"dequantisation": head_cast_bytes(work)}
    found = {"loss": _at(work, loss if several_chunks(work) else loss | head, 0)}
    if several_chunks(work) and not work.full:
        again = {"activations": kept, "logits_loss": chunk_again_bytes(work)}
        found["loss again"] = _at(work, again | head, 0)
    kept -= work.tokens * norm_bytes(work, work.shape.final_norm)  # its backward is over
    workspace = block_workspace(work) + _recomputed_bytes(work)
    block = {"logits_loss": states + waiting_head(work), "dequantisation": unpacked_bytes(work)}
    found["backward"] = _at(work, {"activations": kept + workspace, **block}, 0)
    if not work.accumulates:
        first = -(-kept // work.shape.layers) + workspace
        before = 1 - 1 / work.shape.layers  # its own gradients are still to come
        found["first"] = _at(work, {"activations": first, **block}, before)
    if work.full:
        found["embedding"] = _at(work, {"activations": states, "logits_loss": embedding(work)}, 1)
        update = update_bytes(work.shape, work.optimizer, work.stored_element, device=work.device)
        found["update"] = _at(work, {"update": update}, 1)
    return found


def estimate(work: Workload) -> Buckets:
    """All buckets in bytes at the worst moment; their sum is the peak to plan for."""
    return max(phases(work).values(), key=lambda buckets: sum(buckets.values()))


def _at(work: Workload, step: Buckets, gradients: float) -> Buckets:
    """The buckets with these of the step; `gradients`: the share of this micro-batch's there is."""
    found = static_bytes(work)
    if not work.accumulates:
        found["gradients"] = round(found["gradients"] * gradients)
    added = {"added_tokens": added_token_bytes(work)} if work.added_tokens else {}
    update = {"update": 0} if work.full else {}
    names = dict.fromkeys(("activations", "logits_loss", "dequantisation"), 0)
    return {**found, **added, **names, **update, **step, "overhead": work.overhead_bytes}


def _held_bytes(work: Workload) -> int:
    """What is kept, with what checkpointing does not see, the bool mask itself, and the batch: ids,
    positions, labels and their shifted copy in int64, and which of them are trained."""
    mask = work.tokens * (work.keys if work.masked else 0)
    mask += work.tokens * (4 * INT64 + 1)
    return saved_bytes(work) + _not_seen_bytes(work) + mask


def _blocks_bytes(work: Workload) -> int:
    """All blocks, none of them checkpointed. Below the first adapter nothing is kept, so the first
    block's norm is left out, and the last norm behind the blocks stands in for it; with `full`
    all count."""
    each = norms_bytes(work) + attention_bytes(work)
    blocks = work.shape.layers * each + mlp_bytes(work) + adapter_bytes(work)
    return work.tokens * blocks + cast_bytes(work) + dora_bytes(work) + soft_bytes(work)


def _checkpoint_bytes(work: Workload) -> int:
    """Inputs of the checkpointed blocks, the first one's included, and the last norm."""
    if not work.recomputed_blocks:
        return 0
    inputs = 0 if work.offload else work.recomputed_blocks * _input_bytes(work)
    last = 0 if work.full else work.tokens * norm_bytes(work, work.shape.final_norm)
    return inputs + last


def _recomputed_bytes(work: Workload) -> int:
    """One checkpointed block in its backward, with its input when that was offloaded. When the last
    block is a kept one, it has freed as much before."""
    if not work.recomputed_blocks:
        return 0
    layers, nth = work.shape.layers, EVERY_NTH_BLOCK[work.checkpointing]
    last = (layers - 1) % nth == 0
    block = -(-_blocks_bytes(work) // layers) + _rotary_bytes(work) if last else 0
    if last and work.residual == FP32:  # its first norm keeps the input as it is
        return block - (0 if work.offload else _input_bytes(work))
    return block + (_input_bytes(work) if work.offload else 0)


def _cached_bytes(work: Workload) -> int:
    """Autocast's copies for checkpointed blocks, which live to the end of the forward. Weights that
    are merged for it are no copies of its own."""
    if work.bare_ranks:
        return 0
    return cast_bytes(work) * work.recomputed_blocks // work.shape.layers


def _not_seen_bytes(work: Workload) -> int:
    """The inputs of int8 modules, which bitsandbytes 0.50 keeps as attributes of its autograd
    nodes, where checkpointing does not see them."""
    if work.quantization != "int8":
        return 0
    shape = work.shape
    product, normed = shape.intermediate * work.element, 2 * shape.hidden * work.residual
    again = product + normed + shape.query * work.element
    kept = work.recomputed_blocks * work.tokens * again
    if work.soft is not None or work.element < FP32:  # else LoRA keeps the same tensors
        blocks = (shape.layers - work.recomputed_blocks) * (product + normed)
        # below the first adapter nothing has a node that could keep it
        kept += work.tokens * max(0, blocks - shape.hidden * work.residual)
    return kept


def _input_bytes(work: Workload) -> int:
    return work.tokens * work.shape.hidden * work.residual


def _rotary_bytes(work: Workload) -> int:
    if work.shape.rotary == "none":
        return 0
    return work.tokens * 2 * work.shape.head_dim * work.residual
