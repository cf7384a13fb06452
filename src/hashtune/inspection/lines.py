"""Where an example was read: the source and line of its conversation."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def conversation_of(example: str) -> str:
    """The conversation's id in an example's: <conversation>, or <conversation>.<turn> where it was
    split."""
    return example.partition(".")[0]


def lines_of(
    examples: Collection[str], conversations: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[str, int]]:
    """Source and line of each example whose conversation is there.

    Args:
        examples: ids.
        conversations: "id", "source" and "line" of records.conversation_schema; read once, and
            only those of the examples are kept.
    """
    wanted = {conversation_of(example) for example in examples}
    found = {
        row["id"]: (row["source"], row["line"]) for row in conversations if row["id"] in wanted
    }
    places = {example: found.get(conversation_of(example)) for example in examples}
    return {example: place for example, place in places.items() if place is not None}
