"""Bytes one rank holds when a model is trained on several: a pure function of the buckets of one.

    ddp     every rank holds all; gradients are reduced in buckets of 25 MB, whose flat copies are
            as large as the gradients themselves (Li et al. 2020, arXiv 2006.15704, section 4;
            gradient_as_bucket_view of torch 2.13's DistributedDataParallel shares them)
    full    weights, gradients, master copy and optimizer state are cut into as many parts as there
            are ranks, ZeRO stage 3 (Rajbhandari et al. 2020, arXiv 1910.02054, section 5); a block
            is gathered whole before it is used, the next one already while it runs, and a block's
            gradients are whole until they are reduced (torch's FSDP2, fully_shard on each block and
            on the rest)
    hybrid  the same inside a group of `shard_size` ranks, and copies across groups (Zhao et al.
            2023, PyTorch FSDP, arXiv 2304.11277, section 3.2)

Activations, logits and workspaces belong to a rank's own rows. What does not divide evenly is
padded, each tensor for itself in FSDP2, here the bucket as a whole.
"""

from dataclasses import dataclass
from typing import Literal

from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import Buckets
from hashtune.memory.weights import weight_bytes
from hashtune.memory.workload import Workload

Strategy = Literal["ddp", "full", "hybrid"]
STATE = ("weights", "adapter", "gradients", "master", "optimizer", "accumulation")
PREFETCHED = 2  # the unit in use and the next one


@dataclass(frozen=True, slots=True)
class Sharding:
    """How the ranks share a model. `shard_size`: ranks of a group, for hybrid. `bucket_views`:
    DDP's gradients live in its buckets."""

    strategy: Strategy
    world: int
    shard_size: int = 1
    bucket_views: bool = False

    @property
    def parts(self) -> int:
        """How many ranks hold one copy of the state."""
        if self.strategy == "ddp":
            return 1
        return self.world if self.strategy == "full" else self.shard_size

    @property
    def copies(self) -> int:
        """How many copies of the state there are."""
        return self.world // self.parts


def rank_buckets(work: Workload, sharding: Sharding) -> Buckets:
    """The buckets of one rank: the state's share, `gathered` for units that are whole for a while,
    and `communication` for DDP's flat copies.

    Raises:
        ValueError: the ranks do not divide into groups of shard_size.
    """
    if sharding.world % sharding.parts:
        raise ValueError(f"{sharding.world} ranks do not divide by {sharding.parts}")
    found = dict(estimate(work))
    for name in STATE:
        if name in found:
            found[name] = -(-found[name] // sharding.parts)
    found["gathered"] = gathered_bytes(work) if sharding.parts > 1 else 0
    found["communication"] = 0
    if sharding.strategy == "ddp" and sharding.world > 1 and not sharding.bucket_views:
        found["communication"] = found["gradients"]
    return found


def gathered_bytes(work: Workload) -> int:
    """The largest unit, whole: two blocks, or embedding and head with the norm behind the blocks if
    those are more; and of trained weights one unit's gradients before they are reduced. Gathered
    in the type of the products, as FSDP2's mixed precision does, quantised ones as they are."""
    shape = work.shape
    tables = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    outside = tables + shape.vocab * shape.head_bias + shape.final_norm.parameters + shape.others
    if work.quantization != "none":
        blocks = weight_bytes(work) - outside * work.rest_element
        block = -(-blocks // shape.layers)
        return max(PREFETCHED * block, outside * work.rest_element)
    block = shape.largest_block * work.element
    unit = max(PREFETCHED * block, outside * work.element)
    gradients = max(block, outside * work.element) if work.full else 0
    return unit + gradients
