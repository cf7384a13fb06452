"""Shares of a rank, by hand, for an 8B full fine-tuning and a LoRA of it on eight cards."""

from dataclasses import replace
from typing import Any

import pytest

from hashtune.memory import sharding
from hashtune.memory.activations import estimate
from hashtune.memory.sharding import Sharding, gathered_bytes, rank_buckets
from hashtune.memory.workload import Workload

PARAMETERS = 8_030_261_248
BLOCK = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096  # 218,112,000
OUTSIDE = 2 * 128256 * 4096 + 4096


@pytest.fixture
def full(lora_8b: Workload) -> Workload:
    return replace(lora_8b, full=True, targets=(), r=0)


def test_full_shard_divides_16_bytes_a_parameter_by_the_ranks(full: Workload) -> None:
    """128.5 GB over 8 ranks: 16.06; and a unit gathered in bf16, embedding and head, 1.05e9
    elements, more than two blocks, with its gradients."""
    one, rank = estimate(full), rank_buckets(full, Sharding("full", world=8))
    state = sum(rank[name] for name in ("weights", "gradients", "master", "optimizer"))
    assert state == 16 * PARAMETERS // 8
    assert rank["gathered"] == 2 * OUTSIDE + 2 * OUTSIDE
    assert rank["activations"] == one["activations"]
    assert rank["communication"] == 0


def test_hybrid_divides_inside_a_group(full: Workload) -> None:
    rank = rank_buckets(full, Sharding("hybrid", world=8, shard_size=4))
    assert rank["weights"] == 4 * PARAMETERS // 4
    assert Sharding("hybrid", world=8, shard_size=4).copies == 2
    whole = rank_buckets(full, Sharding("hybrid", world=8, shard_size=8))
    assert whole == rank_buckets(full, Sharding("full", world=8))
    with pytest.raises(ValueError, match="8 ranks do not divide by 3"):
        rank_buckets(full, Sharding("hybrid", world=8, shard_size=3))


def test_ddp_holds_all_and_a_flat_copy_of_the_gradients(lora_8b: Workload) -> None:
    one, rank = estimate(lora_8b), rank_buckets(lora_8b, Sharding("ddp", world=8))
    assert {name: rank[name] for name in one} == one
    assert rank["communication"] == 4 * 41_943_040
    assert rank["gathered"] == 0
    views = rank_buckets(lora_8b, Sharding("ddp", world=8, bucket_views=True))
    assert views["communication"] == 0
    assert rank_buckets(lora_8b, Sharding("ddp", world=1))["communication"] == 0


def test_the_largest_unit_is_two_blocks_where_the_vocabulary_is_small(full: Workload) -> None:
    small = replace(full, shape=replace(full.shape, vocab=32000, tied=True))
    assert small.shape.largest_block == BLOCK
    assert gathered_bytes(small) == 2 * 2 * BLOCK + 2 * BLOCK


def test_a_quantised_base_is_gathered_as_it_is(lora_8b: Workload) -> None:
    """fp32 embeddings and head, 4.2 GB, are more than two blocks of 4.127 bits a weight."""
    nf4 = replace(lora_8b, quantization="nf4")
    assert gathered_bytes(nf4) == 4 * OUTSIDE


def test_planted_fault_gradients_that_are_not_cut(
    full: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: Any = tuple(name for name in sharding.STATE if name != "gradients")
    monkeypatch.setattr(sharding, "STATE", kept)
    rank = rank_buckets(full, Sharding("full", world=8))
    assert rank["gradients"] == 8 * (4 * PARAMETERS // 8)
