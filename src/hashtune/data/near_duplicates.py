"""Texts that say nearly the same: every pair whose word shingles are similar enough, found exactly.

Two texts are alike when the sets of their shingles (runs of n words) have at least the declared
Jaccard similarity; alike.py finds them.

MinHash LSH misses pairs by chance, and rows that share a frame (a prompt template) meet in its
bands whatever they say: at a threshold of 0.8 (25 bands of 5) it compares 95 % of the pairs of
similarity 0.65. Here no pair is missed, there is no seed, and what all rows share is no place to
meet. Cost: linear in the words, apart from the comparisons (40,000 rows of 120 words: 7 s of one
core); memory about 12 bytes a word beside the rows, and 8 more while counting.
"""

import re
from collections.abc import Sequence

import numpy as np

from hashtune import writers
from hashtune.data.alike import Elements, first_alike
from hashtune.data.cleaning import normalise
from hashtune.data.filters import text_of
from hashtune.data.table import Rows, Table
from hashtune.data.words import WORD
from hashtune.records import Conversation, Message

# punctuation is a word of its own, or "2+2" would be "2-2"
_TOKEN = re.compile(WORD + r"|[^\w\s]")
FRAME_ROLES = ("system", "developer")
FLAGS = ("train", "weight")


def shingles(text: str, n: int) -> Elements:
    """Runs of n words of the normalised text; a shorter text is one run."""
    tokens = _TOKEN.findall(normalise(text))
    if not tokens:
        return frozenset()
    return frozenset(" ".join(tokens[i : i + n]) for i in range(max(1, len(tokens) - n + 1)))


def conversation_shingles(conversation: Conversation, n: int) -> Elements:
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


def jaccard(one: Elements, other: Elements) -> float:
    """Shared / all shingles of two sets, in [0, 1]; 0 when both are empty."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def drop_near_duplicates(table: Table, rows: Rows, *, threshold: float, n: int) -> Rows:
    """Keep the first of alike conversations; the ledger names the one kept.

    Returns:
        The rows that stay, in their order.
    """
    sets = (conversation_shingles(table.conversation(row), n) for row in rows)
    alike = first_alike(sets, threshold)
    stays = np.ones(len(rows), bool)
    for place, (number, similarity) in alike.items():
        first = rows[number]
        detail = f"near {table.source(first)}:{table.line(first)}, Jaccard {similarity:.4g}"
        table.drop(rows[place], "near_duplicate", detail)
        stays[place] = False
    return rows[stays]
