"""What torch's CUDA caching allocator reserves for a sequence of births and deaths.

The rules are those of c10/cuda/CUDACachingAllocator.cpp in torch 2.13 with its default settings
(one stream, no expandable segments, no max_split_size, no garbage collection); the constants are
those of c10/core/AllocatorConfig.h:

    round_size           up to a multiple of 512 bytes, at least 512
    get_pool             small up to 1 MiB, else large
    get_allocation_size  segments of 2 MiB (small), 20 MiB (below 10 MiB), else up to 2 MiB
    get_free_block       best fit: the smallest free block that is large enough, lowest address
    should_split         small: 512 bytes or more are left; large: more than 1 MiB is left
    free_block           merged with free neighbours of its segment
    no room              cached blocks that are whole segments go back, then one more try

Reserved is what segments sum up to; memory outside of torch (context, cuBLAS) is not in it.
Addresses of segments are taken to grow, which decides between free blocks of equal size only.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

MIN_BLOCK = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
MIN_LARGE = 10 << 20
ROUND_LARGE = 2 << 20


def rounded(size: int) -> int:
    """Bytes of the block that a request of `size` bytes gets."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(block: int) -> int:
    """Bytes of the new segment that a block of this rounded size is cut from."""
    if block <= SMALL:
        return SMALL_SEGMENT
    if block < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-block // ROUND_LARGE) * ROUND_LARGE


class OutOfMemoryError(Exception):
    """A block that the capacity has no room for."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; `before` and `after` are its neighbours in it."""

    address: int
    size: int
    small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    free: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """Order of the free blocks: by size, then by address."""
        return self.size, self.address


@dataclass(slots=True)
class Pool:
    """The free blocks of one kind, sorted by key."""

    keys: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """Take a free block in."""
        insort(self.keys, block.key)
        self.blocks[block.key] = block

    def remove(self, block: Block) -> None:
        """Take it out."""
        del self.keys[bisect_left(self.keys, block.key)]
        del self.blocks[block.key]

    def best(self, size: int) -> Block | None:
        """The smallest block of at least `size` bytes, taken out."""
        index = bisect_left(self.keys, (size, 0))
        if index == len(self.keys):
            return None
        block = self.blocks[self.keys[index]]
        self.remove(block)
        return block


@dataclass(slots=True)
class Allocator:
    """Bytes `allocated` (rounded blocks in use) and `reserved` (segments), and the most of each.

    capacity: bytes that segments may take; None is without limit.
    """

    capacity: int | None = None
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    retries: int = 0
    _next: int = 0
    _small: Pool = field(default_factory=Pool)
    _large: Pool = field(default_factory=Pool)

    def malloc(self, size: int) -> Block:
        """A block for `size` bytes. Raises OutOfMemoryError where the capacity has no room."""
        wanted = rounded(size)
        pool = self._pool(wanted <= SMALL)
        block = pool.best(wanted) or self._segment(wanted)
        left = block.size - wanted
        if left >= MIN_BLOCK if block.small else left > SMALL:
            self._split(block, wanted)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
        """Give a block back; free neighbours become one block with it."""
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._pool(block.small).remove(other)
                _merge(block, other)
        self._pool(block.small).add(block)

    def empty_cache(self) -> None:
        """Give back the segments in which nothing is in use."""
        for pool in (self._small, self._large):
            for block in list(pool.blocks.values()):
                if block.before is None and block.after is None:
                    pool.remove(block)
                    self.reserved -= block.size

    def _pool(self, small: bool) -> Pool:
        return self._small if small else self._large

    def _segment(self, wanted: int) -> Block:
        size = segment_size(wanted)
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.retries += 1
            self.empty_cache()
            if self.reserved + size > self.capacity:
                raise OutOfMemoryError(f"{size} bytes, {self.capacity - self.reserved} are left")
        block = Block(self._next, size, wanted <= SMALL)
        self._next += size
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _split(self, block: Block, wanted: int) -> None:
        rest = Block(block.address + wanted, block.size - wanted, block.small, block, block.after)
        rest.free = True
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, wanted
        self._pool(block.small).add(rest)


def _merge(block: Block, other: Block) -> None:
    """`block` takes in its neighbour."""
    if other is block.before:
        block.address, block.before = other.address, other.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = other.after
        if block.after is not None:
            block.after.before = block
    block.size += other.size


def replay(events: Iterable[tuple[int, int]], *, capacity: int | None = None) -> Allocator:
    """The allocator after these events: (n, bytes) is born, (-n, any) dies. A storage of no bytes
    takes nothing. Raises OutOfMemoryError as `malloc`."""
    allocator, blocks = Allocator(capacity), dict[int, Block]()
    for number, size in events:
        if number > 0 and size:
            blocks[number] = allocator.malloc(size)
        elif -number in blocks:
            allocator.free(blocks.pop(-number))
    return allocator
