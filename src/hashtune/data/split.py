"""Split by content hash: where a conversation goes depends on itself alone.

So rows can be added, removed or moved without moving the others, and rows that share a `group`
(one customer, one document) stay on one side.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hashtune.errors import Finding
from hashtune.records import Conversation

FRACTION_HEX = 13  # 52 bits: every value is exact in a double


@dataclass(slots=True)
class Split:
    """Conversations by split, each in input order."""

    train: list[Conversation] = field(default_factory=list)
    eval: list[Conversation] = field(default_factory=list)
    test: list[Conversation] = field(default_factory=list)


def rank(key: str) -> str:
    """Hex sha256 of a key: the order in which rows are taken, independent of input order."""
    return hashlib.sha256(key.encode()).hexdigest()


def fraction(key: str) -> float:
    """Where the key lies in [0, 1): its sha256 read as a binary fraction."""
    return int(rank(key)[:FRACTION_HEX], 16) / (1 << 4 * FRACTION_HEX)


def split(
    conversations: Iterable[Conversation], *, eval_fraction: float, test_fraction: float
) -> Split:
    """Test takes [0, test_fraction), eval takes [1 - eval_fraction, 1), train the rest.

    From both ends, so that changing one fraction moves no row between train and the other split.
    """
    result = Split()
    for conversation in conversations:
        place = fraction(conversation.group if conversation.group is not None else conversation.id)
        if place < test_fraction:
            result.test.append(conversation)
        elif place >= 1.0 - eval_fraction:
            result.eval.append(conversation)
        else:
            result.train.append(conversation)
    return result


def take_first(
    conversations: Sequence[Conversation], limit: int | None
) -> tuple[list[Conversation], list[Conversation]]:
    """The `limit` first conversations in hash order and the others; all of them for None."""
    ordered = sorted(conversations, key=lambda c: (rank(c.id), c.source, c.line))
    count = len(ordered) if limit is None else limit
    return ordered[:count], ordered[count:]


def check_fractions(*, eval_fraction: float, test_fraction: float) -> list[Finding]:
    """A finding when nothing would be left for train."""
    if eval_fraction + test_fraction < 1.0:
        return []
    message = f"{eval_fraction:g} and data.test.fraction {test_fraction:g} leave nothing for train"
    return [Finding("fractions", message, field="data.eval.fraction")]
