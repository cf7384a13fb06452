"""A message's content as a list of parts, [{"type": "text", "text": "..."}]: its one text.

Only texts can be trained on. The texts are joined as they are, as most templates do that print
several parts (docs/decisions.md).
"""

from collections.abc import Iterator, Mapping
from typing import Any

FIX = "give one text, or parts of type text that hold nothing else"


def broken_parts(content: list[Any]) -> Iterator[tuple[int, str]]:
    """(index, what is wrong) of every part that is not a text and nothing else."""
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            yield index, f"expected a part of type text, got {type(part).__name__}"
        elif part.get("type") != "text":
            yield index, f"a part of type {part.get('type')!r}, expected 'text'"
        elif not isinstance(part.get("text"), str):
            yield index, "a text part without text"
        elif others := sorted(key for key in part if key not in ("type", "text") and part[key]):
            yield index, f"a text part that also holds {', '.join(map(repr, others))}"


def with_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its parts joined to one text; itself where the content is no list."""
    content = message.get("content")
    if not isinstance(content, list):
        return message if isinstance(message, dict) else dict(message)
    return {**message, "content": "".join(part["text"] for part in content)}
