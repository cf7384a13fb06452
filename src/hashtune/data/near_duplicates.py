"""Texts that say nearly the same: MinHash proposes pairs, exact Jaccard similarity decides.

Two texts are alike when the sets of their word shingles (runs of n words) have at least the
declared Jaccard similarity. Only texts that agree on one band of their MinHash signatures are
compared; the bands are so narrow that a pair at the threshold is missed with a chance below MISS.
All hashes are fixed, so equal rows give equal results. Cost: linear in the words, apart from the
comparisons that texts with many just-not-alike neighbours need.

Own code, since an LSH index of Python dicts took three times as long and ten times the memory:
here the signatures are one array, and only keys that occur twice become Python objects.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hashtune import writers
from hashtune.data.cleaning import normalise
from hashtune.data.leakage import WORD
from hashtune.records import Conversation, Dropped

PERMUTATIONS = 128
MISS = 1e-3
AT_ONCE = 4096  # shingles hashed together: 4 MiB
REMEMBERED = 4096  # shingle sets kept for the comparisons
# punctuation is a word of its own, or "2+2" would be "2-2"
_TOKEN = re.compile(WORD + r"|[^\w\s]")
_FRAME = ("system", "developer")
_MULTIPLY, _ADD, _FOLD = np.frombuffer(
    hashlib.shake_128(b"hashtune near duplicates").digest(3 * 8 * PERMUTATIONS), "<u8"
).reshape(3, PERMUTATIONS)
_MULTIPLY = _MULTIPLY | np.uint64(1)  # odd: multiplication is then one to one

Shingles = frozenset[str]


def shingles(text: str, n: int) -> Shingles:
    """Runs of n words of the normalised text; a shorter text is one run."""
    tokens = _TOKEN.findall(normalise(text))
    if not tokens:
        return frozenset()
    return frozenset(" ".join(tokens[i : i + n]) for i in range(max(1, len(tokens) - n + 1)))


def conversation_shingles(conversation: Conversation, n: int) -> Shingles:
    """Shingles of all messages by role. Rows of one system message are compared without it, since
    all of them hold it; rows of different ones have nothing in common."""
    system = [normalise(m["content"] or "") for m in conversation.messages if m["role"] in _FRAME]
    frame = writers.sha256_bytes(writers.canonical_json(system).encode())[:16]
    found: set[str] = set()
    for message in conversation.messages:
        if message["role"] in _FRAME:
            continue
        other = {key: value for key, value in message.items() if key not in ("role", "content")}
        text = message["content"] or ""
        text += f"\n{writers.canonical_json(other, indent=None)}" if other else ""
        found |= {f"{frame} {message['role']} {shingle}" for shingle in shingles(text, n)}
    return frozenset(found)


def jaccard(one: Shingles, other: Shingles) -> float:
    """Shared / all shingles of two sets, in [0, 1]; 0 when both are empty."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def band_width(threshold: float) -> int:
    """The widest band (fewest false pairs) that misses a pair at the threshold by less than MISS.

    A pair of similarity s agrees on a band of r values with probability s^r, so it is missed by
    all b = PERMUTATIONS // r bands with (1 - s^r)^b.
    """
    widths = range(1, PERMUTATIONS + 1)
    return max(r for r in widths if (1.0 - threshold**r) ** (PERMUTATIONS // r) < MISS)


def signature(of: Shingles) -> NDArray[np.uint64]:
    """MinHash values, shape (PERMUTATIONS,); sets share a value with their Jaccard similarity."""
    hashes = np.frombuffer(
        b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in of), "<u8"
    )
    smallest = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(hashes), AT_ONCE):
        part = np.multiply.outer(hashes[start : start + AT_ONCE], _MULTIPLY) + _ADD
        smallest = np.minimum(smallest, (part >> np.uint64(32)).min(axis=0))
    return smallest


def buckets(sets: Iterable[Shingles], count: int, threshold: float) -> NDArray[np.int64]:
    """Shape (count, bands): equal numbers in a column mark sets that agree on a band, -1 marks a
    set that agrees with no other. An empty set agrees with none."""
    width = band_width(threshold)
    bands = PERMUTATIONS // width
    keys = np.zeros((count, bands), np.uint64)
    empty = np.zeros(count, bool)
    for row, of in enumerate(sets):
        folded = signature(of)[: bands * width].reshape(bands, width) * _FOLD[:width]
        keys[row], empty[row] = folded.sum(axis=1, dtype=np.uint64), not of
    numbers = np.full((count, bands), -1, np.int64)
    for band in range(bands):
        _, inverse, times = np.unique(keys[:, band], return_inverse=True, return_counts=True)
        numbers[:, band] = np.where((times[inverse] > 1) & ~empty, inverse, -1)
    return numbers


def places(numbers: NDArray[np.int64]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """(row, its (band, number) pairs) for every row that shares a bucket, in row order."""
    for row in np.flatnonzero((numbers >= 0).any(axis=1)).tolist():
        yield row, [(band, n) for band, n in enumerate(numbers[row].tolist()) if n >= 0]


def first_alike(
    of: Callable[[int], Shingles], count: int, threshold: float
) -> dict[int, tuple[int, float]]:
    """Rows that are alike to an earlier row that stays: row -> (the first such row, similarity)."""
    numbers = buckets(map(of, range(count)), count, threshold)
    remembered = lru_cache(maxsize=REMEMBERED)(of)
    staying: dict[tuple[int, int], list[int]] = defaultdict(list)
    alike: dict[int, tuple[int, float]] = {}
    for row, mine in places(numbers):
        for other in sorted({other for place in mine for other in staying[place]}):
            similarity = jaccard(remembered(row), remembered(other))
            if similarity >= threshold:
                alike[row] = (other, similarity)
                break
        else:
            for place in mine:
                staying[place].append(row)
    return alike


def drop_near_duplicates(
    conversations: Sequence[Conversation], *, threshold: float, n: int
) -> tuple[list[Conversation], list[Dropped]]:
    """Keep the first of alike conversations; the ledger names the one kept."""
    alike = first_alike(
        lambda row: conversation_shingles(conversations[row], n), len(conversations), threshold
    )
    kept, dropped = [], []
    for row, conversation in enumerate(conversations):
        if row not in alike:
            kept.append(conversation)
            continue
        number, similarity = alike[row]
        first = conversations[number]
        detail = f"near {first.source}:{first.line}, Jaccard {similarity:.4g}"
        line = conversation.line
        dropped.append(
            Dropped(conversation.id, conversation.source, line, "near_duplicate", detail)
        )
    return kept, dropped
