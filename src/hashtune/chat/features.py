"""What a template can tell apart in a conversation: roles, fields, and the texts it looks for."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from hashtune.chat.messages import ASSISTANT, REASONING_FIELDS, is_plain
from hashtune.chat.reasoning import PAIRS
from hashtune.chat.sentinels import calls_bare
from hashtune.chat.template import Template
from hashtune.records import Message

Feature = tuple[str, tuple[str, ...], bool, tuple[str, ...]]
Key = tuple[Feature, ...]
FIELDS = ("content", "tool_calls", "name", "tool_call_id", *REASONING_FIELDS)


def turn_keys(template: Template, messages: Sequence[Message], turns: Sequence[int]) -> list[Key]:
    """The features around each turn: of its own message, of the one before and of the one after."""
    features = features_of(template, messages)
    return [tuple(features[max(0, turn - 1) : turn + 2]) for turn in turns]


def features_of(template: Template, messages: Iterable[Message]) -> list[Feature]:
    """The features of each message."""
    searched = _searched(template.searched_texts)
    return [_feature(message, searched) for message in messages]


@lru_cache(maxsize=8)
def _searched(texts: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted({*texts, *(tag for pair in PAIRS for tag in pair)}))


def _feature(message: Message, searched: Sequence[str]) -> Feature:
    """Role, fields that hold something, whether a call has no arguments, blank edges of the
    content, and what it holds of the texts that the template searches contents for."""
    content = str(message.get("content") or "")
    plain = is_plain(message)
    names = ("content",) if plain else FIELDS
    fields = tuple(field for field in names if message.get(field))
    if "tool_calls" in fields and calls_bare(message):
        fields += ("no arguments",)
    texts = content
    if message["role"] == ASSISTANT and not plain:
        texts += "\0".join(str(message.get(field) or "") for field in REASONING_FIELDS)
    held = tuple(text for text in searched if text in texts)
    return message["role"], fields, content != content.strip(), held
