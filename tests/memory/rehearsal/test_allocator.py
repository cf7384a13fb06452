"""The model of torch's caching allocator: sequences whose answers are worked out by hand."""

import pytest

from hashtune.memory.rehearsal.allocator import (
    Allocator,
    OutOfMemoryError,
    replay,
    rounded,
    segment_size,
)

MIB = 1 << 20


@pytest.mark.parametrize(("size", "block"), [(1, 512), (512, 512), (513, 1024), (1000, 1024)])
def test_a_request_is_rounded_to_512_bytes(size: int, block: int) -> None:
    assert rounded(size) == block


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (131 * MIB, 132 * MIB),
    ],
)
def test_a_new_segment_has_the_size_of_its_kind(block: int, segment: int) -> None:
    assert segment_size(block) == segment


def test_small_blocks_share_a_segment_of_2_mib() -> None:
    allocator = Allocator()
    for _ in range(4096):  # 4096 * 512 bytes are 2 MiB
        allocator.malloc(100)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB, 2 * MIB)
    allocator.malloc(100)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB + 512, 4 * MIB)


def test_blocks_below_10_mib_share_a_segment_of_20() -> None:
    allocator = Allocator()
    allocator.malloc(9 * MIB)
    allocator.malloc(9 * MIB)  # 11 MiB were left
    assert allocator.reserved == 20 * MIB
    allocator.malloc(9 * MIB)  # 2 MiB are left
    assert allocator.reserved == 40 * MIB
    allocator.malloc(2 * MIB)  # fits into them exactly
    assert (allocator.allocated, allocator.reserved) == (29 * MIB, 40 * MIB)


def test_a_large_rest_of_up_to_1_mib_is_not_split_off() -> None:
    allocator = Allocator()
    allocator.malloc(11 * MIB)  # a segment of 12 MiB, all of it
    assert (allocator.allocated, allocator.reserved) == (12 * MIB, 12 * MIB)
    other = Allocator()
    other.malloc(11 * MIB - 512)  # 1 MiB and 512 bytes are left
    assert (other.allocated, other.reserved) == (11 * MIB - 512, 12 * MIB)


def test_the_smallest_free_block_that_is_large_enough_is_taken() -> None:
    allocator = Allocator()
    forty, thirty = allocator.malloc(40 * MIB), allocator.malloc(30 * MIB)
    allocator.free(forty)
    allocator.free(thirty)
    block = allocator.malloc(28 * MIB)
    assert (block.address, allocator.reserved) == (40 * MIB, 70 * MIB)


def test_free_neighbours_become_one_block() -> None:
    allocator = Allocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]  # one segment of 20 MiB
    for index in (0, 2, 1):
        allocator.free(blocks[index])
    assert allocator.malloc(15 * MIB).address == 0
    assert (allocator.allocated, allocator.reserved) == (20 * MIB, 20 * MIB)


def test_blocks_apart_do_not_make_room_together() -> None:
    allocator = Allocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    allocator.malloc(10 * MIB)
    assert (allocator.allocated, allocator.reserved) == (20 * MIB, 30 * MIB)


def test_what_is_free_stays_reserved_until_the_cache_is_emptied() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(50 * MIB))
    assert (allocator.allocated, allocator.reserved) == (0, 50 * MIB)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.peak_reserved) == (0, 50 * MIB)


def test_a_full_card_gives_back_its_cache_before_it_fails() -> None:
    allocator = Allocator(capacity=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    assert (allocator.retries, allocator.reserved) == (1, 80 * MIB)
    with pytest.raises(OutOfMemoryError, match=f"{40 * MIB} bytes, {20 * MIB} are left"):
        allocator.malloc(40 * MIB)


def test_a_record_is_replayed() -> None:
    # 3 and 4 MiB share 20 MiB, 30 MiB has its own segment, an empty tensor has none
    events = [(1, 3 * MIB), (2, 30 * MIB), (3, 0), (-2, 0), (-3, 0), (4, 4 * MIB), (-1, 0)]
    allocator = replay(events)
    assert (allocator.allocated, allocator.peak_allocated) == (4 * MIB, 33 * MIB)
    assert (allocator.reserved, allocator.peak_reserved) == (50 * MIB, 50 * MIB)
