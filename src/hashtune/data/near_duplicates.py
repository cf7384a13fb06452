"""Texts that say nearly the same: every pair whose word shingles are similar enough, found exactly.

Two texts are alike when the sets of their shingles (runs of n words) have at least the declared
Jaccard similarity. Sets that alike share at least one of their rarest elements (the prefix
filter of set-similarity joins: Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007),
so only rows that meet there are compared, and then exactly.

MinHash LSH misses pairs by chance, and rows that share a frame (a prompt template) meet in its
bands whatever they say: at a threshold of 0.8 (25 bands of 5) it compares 95 % of the pairs of
similarity 0.65. Here no pair is missed, there is no seed, and what all rows share is no place to
meet. Cost: linear in the words, apart from the comparisons (40,000 rows of 120 words: 7 s of one
core); memory about 8 bytes a word beside the rows, and as much again while counting.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hashtune import writers
from hashtune.data.cleaning import normalise
from hashtune.data.filters import text_of
from hashtune.data.leakage import WORD
from hashtune.data.table import Rows, Table
from hashtune.records import Conversation, Message

REMEMBERED = 4096  # shingle sets kept for the comparisons
# punctuation is a word of its own, or "2+2" would be "2-2"
_TOKEN = re.compile(WORD + r"|[^\w\s]")
FRAME_ROLES = ("system", "developer")
FLAGS = ("train", "weight")

Shingles = frozenset[str]


def shingles(text: str, n: int) -> Shingles:
    """Runs of n words of the normalised text; a shorter text is one run."""
    tokens = _TOKEN.findall(normalise(text))
    if not tokens:
        return frozenset()
    return frozenset(" ".join(tokens[i : i + n]) for i in range(max(1, len(tokens) - n + 1)))


def conversation_shingles(conversation: Conversation, n: int) -> Shingles:
    """Shingles of all messages by role. Rows of one system message are compared without it, since
    all of them hold it; rows that differ in it, or in what is trained, have nothing in common."""
    frame = _frame(conversation.messages)
    found: set[str] = set()
    for message in conversation.messages:
        if message["role"] in FRAME_ROLES:
            continue
        text = text_of(message)
        left_out = {"role", "content", *FLAGS} if text else {"role", *FLAGS}
        other = {k: v for k, v in message.items() if k not in left_out and v is not None}
        text += f"\n{writers.canonical_json(other, indent=None)}" if other else ""
        found |= {f"{frame} {message['role']} {shingle}" for shingle in shingles(text, n)}
    return frozenset(found)


def _frame(messages: Sequence[Message]) -> str:
    system = [normalise(text_of(m)) for m in messages if m["role"] in FRAME_ROLES]
    flags = [
        [number, key, message[key]]
        for number, message in enumerate(messages)
        for key in FLAGS
        if message.get(key) is not None
    ]
    return writers.sha256_bytes(writers.canonical_json([system, flags]).encode())[:16]


def jaccard(one: Shingles, other: Shingles) -> float:
    """Shared / all shingles of two sets, in [0, 1]; 0 when both are empty."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def hashes(of: Shingles) -> NDArray[np.uint64]:
    """One 64-bit hash per shingle, the same in every process; shape (shingles,)."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in of)
    return np.frombuffer(b"".join(digests), "<u8")


def meeting_points(sets: Iterable[Shingles], threshold: float) -> list[list[int]]:
    """For each set the numbers of its rarest elements, so many that two sets of at least this
    similarity have one in common.

    Alike sets share at least r = ceil(threshold * size) elements of each; so with all elements
    in one order, some shared element is among the first size - r + 1 of both. Rarest first, and
    an element that one set alone has comes before all others and is left out.
    """
    rows = [hashes(of) for of in sets]
    values, times = np.unique(np.concatenate([np.empty(0, "<u8"), *rows]), return_counts=True)
    values, times = values[times > 1], times[times > 1]
    rank = np.empty(len(values), np.int64)
    rank[np.lexsort((values, times))] = np.arange(len(values))
    return [_rarest(row, values, rank, threshold) for row in rows]


def _rarest(
    row: NDArray[np.uint64], values: NDArray[np.uint64], rank: NDArray[np.int64], threshold: float
) -> list[int]:
    found = np.searchsorted(values, row)
    known = found < len(values)
    known[known] = values[found[known]] == row[known]
    shared = np.sort(rank[found[known]])
    needed = ceil(threshold * len(row) - 1e-9)  # a float above the true product loses nothing
    return [int(number) for number in shared[: max(0, len(shared) - needed + 1)]]


def first_alike(
    of: Callable[[int], Shingles], count: int, threshold: float
) -> dict[int, tuple[int, float]]:
    """Rows that are alike to an earlier row that stays: row -> (the first such row, similarity)."""
    remembered = lru_cache(maxsize=REMEMBERED)(of)
    staying: dict[int, list[int]] = defaultdict(list)
    alike: dict[int, tuple[int, float]] = {}
    for row, points in enumerate(meeting_points(map(of, range(count)), threshold)):
        for other in sorted({other for point in points for other in staying[point]}):
            similarity = jaccard(remembered(row), remembered(other))
            if similarity >= threshold:
                alike[row] = (other, similarity)
                break
        else:
            for point in points:
                staying[point].append(row)
    return alike


def drop_near_duplicates(table: Table, rows: Rows, *, threshold: float, n: int) -> Rows:
    """Keep the first of alike conversations; the ledger names the one kept.

    Returns:
        The rows that stay, in their order.
    """
    alike = first_alike(
        lambda place: conversation_shingles(table.conversation(rows[place]), n),
        len(rows),
        threshold,
    )
    stays = np.ones(len(rows), bool)
    for place, (number, similarity) in alike.items():
        first = rows[number]
        detail = f"near {table.source(first)}:{table.line(first)}, Jaccard {similarity:.4g}"
        table.drop(rows[place], "near_duplicate", detail)
        stays[place] = False
    return rows[stays]
