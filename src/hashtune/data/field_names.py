"""Names of fields that nobody reads: counted, and refused where one that we read is meant.

`Train: false` or `toolCalls` would be let pass as a field of somebody else's, and the answer be
trained that should be masked, or without its call.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hashtune.records import REASONING, Message
from hashtune.spec.rows import FIELDS, NEEDED, Schema

MAY_BE_IN_A_MESSAGE = ("name", "tool_calls", "tool_call_id", "train", "weight", *REASONING)
MASKS = ("train", "weight")
IN_A_MESSAGE = frozenset(("role", "content", *MAY_BE_IN_A_MESSAGE))
_PLAIN = 2  # a message of so many fields has no other than role and content


def meant(holder: Mapping[str, Any], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """(name, the known name it means) of each field spelled otherwise than it is read: in other
    cases, or with other signs between its words."""
    folded = {_folded(name): name for name in known}
    for name in holder:
        right = folded.get(_folded(name))
        if right is not None and name not in known:
            yield name, right


def may_be_in_a_row(schema: Schema, fields: Mapping[str, str]) -> frozenset[str]:
    """The file's own names of the fields that a row may lack; one that it needs is missing."""
    optional = FIELDS[schema] - set(NEEDED[schema]) - {"id"}
    return optional - fields.keys() | {fields[name] for name in optional & fields.keys()}


def masks_of_row(row: Mapping[str, Any], unread: Collection[str]) -> Iterator[str]:
    """The unread fields of a row that would mask it if it were a message (`train: false`,
    `weight: 0`); with another value they ask for nothing."""
    yield from (name for name in MASKS if name in unread and row[name] in (False, 0))


def others(messages: Iterable[Message]) -> Iterator[str]:
    """The fields of messages that nothing but a template could read, as "messages[].name"."""
    for message in messages:
        if len(message) > _PLAIN:
            yield from (f"messages[].{name}" for name in message if name not in IN_A_MESSAGE)


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()
