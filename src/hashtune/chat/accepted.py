"""What a template accepts: a system message as part of the first question, contents as lists."""

from collections.abc import Callable, Collection, Sequence

from hashtune.errors import Finding, InputError
from hashtune.records import Message

PROBE = "zqprobeqz"
WITNESS = "zqwitnessqz"
USER = {"role": "user", "content": PROBE}
CALL = {"type": "function", "id": "abcdefghi", "function": {"name": "f", "arguments": {}}}
TALKS: dict[str, list[Message]] = {  # the last message of the role is looked for
    "user": [USER],
    "assistant": [{**USER, "content": "hi"}, {"role": "assistant", "content": PROBE}],
    "system": [{"role": "system", "content": PROBE}, {**USER, "content": "hi"}],
    "tool": [
        {**USER, "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": PROBE},
    ],
}


def list_roles(render: Callable[[list[Message]], str | None]) -> frozenset[str]:
    """Roles whose content is printed as a list of parts only, found by rendering.

    A template that prints the list itself, as Python or JSON writes it, takes no lists: it shows
    the key of a part that none reads. `render` gives None where the template refuses the messages.
    """
    found: frozenset[str] = frozenset()
    for role, talk in TALKS.items():
        text, parts = (render(_with_witness(as_parts(talk, r))) for r in (found, found | {role}))
        if PROBE not in (text or "") and PROBE in (parts or "") and WITNESS not in (parts or ""):
            found |= {role}
    return found


def _with_witness(messages: Sequence[Message]) -> list[Message]:
    """The messages with a key in front of each part that only a print of the whole part shows."""
    return [
        {**message, "content": [{WITNESS: "", **part} for part in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


def as_parts(messages: Sequence[Message], roles: Collection[str]) -> list[Message]:
    """The messages with the contents of these roles as lists of one text part."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if message["role"] in roles
        else message
        for message in messages
    ]


def system_faults(messages: Sequence[Message]) -> list[Finding]:
    """Why system messages cannot be merged: each must come first, before a user message."""
    found = []
    for index, message in enumerate(messages):
        follower = messages[index + 1]["role"] if index + 1 < len(messages) else "nothing"
        if message["role"] == "system" and (index or follower != "user"):
            said = f"a system message at {index}, before {follower}, has no question to merge into"
            fix = "tokenizer.system merge_into_user needs it first, before a user message"
            where = f"messages[{index}].role"
            found.append(Finding("system-merge", said, field=where, fix=fix))
    return found


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """The system text before the first question, a blank line between them.

    Raises:
        InputError: a system message elsewhere.
    """
    if found := system_faults(messages):
        raise InputError(found)
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, question, *rest = messages
    return [{**question, "content": f"{system['content']}\n\n{question['content']}"}, *rest]
