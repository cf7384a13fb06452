"""The rules for the messages of one conversation: fields, roles and their order.

Other fields of a message (name, tool_call_id, ...) are kept as written: chat templates print them.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune import parts
from hashtune.data.field_names import MAY_BE_IN_A_MESSAGE, meant
from hashtune.errors import Finding, nearest
from hashtune.records import contradicts_itself

ROLES = ("system", "developer", "user", "assistant", "tool")
OTHER_TEXTS = {  # fields that some templates print, and the JSON types they may have
    **dict.fromkeys(("reasoning_content", "thinking", "reasoning", "name"), ("string", "null")),
    "tool_call_id": ("string", "number", "null"),
}
OLD_CALL = "function_call"
CALLS = ("tool_calls", OLD_CALL)
FOREIGN_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, for findings."""

    file: str
    line: int

    def finding(self, rule: str, field: str, message: str, fix: str | None = None) -> Finding:
        """A finding about one field of this line."""
        return Finding(rule, message, file=self.file, line=self.line, field=field, fix=fix)


def kind(value: object) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    for name, types in (
        ("boolean", bool),
        ("number", int | float),
        ("string", str),
        ("array", list),
    ):
        if isinstance(value, types):
            return name
    return "object"


def is_blank(text: str) -> bool:
    """True when nothing in the text can be seen: spaces, control and zero-width characters, blank
    letters, selectors of a character's look."""
    return not any(unicodedata.category(c) not in _UNSEEN and not _BLANK.match(c) for c in text)


_UNSEEN = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})
# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt as far as its categories are
# others (fillers of Hangul and Khmer, joiners, selectors), and the empty cell of Braille
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def check_text(
    holder: Mapping[str, Any], key: str, field: str, place: Place, *, may_be_blank: bool = False
) -> list[Finding]:
    """Findings for a field that must be a text: missing, null, wrong type, blank."""
    if key not in holder:
        return [place.finding("missing", field, "missing")]
    value = holder[key]
    if value is None:
        return [place.finding("null", field, "null, expected string")]
    if not isinstance(value, str):
        return [place.finding("wrong-type", field, f"expected string, got {kind(value)}")]
    if is_blank(value) and not may_be_blank:
        return [place.finding("blank", field, "blank")]
    return []


def check_messages(messages: object, place: Place) -> list[Finding]:
    """All findings for the value of "messages"; their order is checked once each one is sound."""
    findings = check_each(messages, place)
    if findings or not isinstance(messages, list):
        return findings
    paths = [f"messages[{index}]" for index in range(len(messages))]
    return check_order(messages, paths, place, whole="messages")


def check_each(messages: object, place: Place) -> list[Finding]:
    """All findings for the value of "messages", the order of roles apart."""
    if not isinstance(messages, list):
        message = f"expected array, got {kind(messages)}"
        return [place.finding("null" if messages is None else "wrong-type", "messages", message)]
    if not messages:
        return [place.finding("empty", "messages", "no messages")]
    findings = []
    for index, message in enumerate(messages):
        findings += check_message(message, f"messages[{index}]", place)
    return findings


def check_message(message: object, field: str, place: Place) -> list[Finding]:
    """All findings for one message at the path `field`, its place among others apart."""
    if not isinstance(message, dict):
        return [place.finding("wrong-type", field, f"expected object, got {kind(message)}")]
    findings = check_text(message, "role", f"{field}.role", place)
    role = message.get("role")
    if not findings and role not in ROLES:
        findings.append(_unknown_role(str(role), message, field, place))
    findings += _check_content(message, field, place)
    findings += _check_calls(message, field, place)
    findings += _check_others(message, field, place)
    findings += misspelled(message, MAY_BE_IN_A_MESSAGE, place, within=f"{field}.")
    if "train" in message and not isinstance(message["train"], bool):
        found = kind(message["train"])
        text = f"expected true or false, got {found}"
        findings.append(place.finding("wrong-type", f"{field}.train", text))
    if "weight" in message and (
        kind(message["weight"]) != "number" or message["weight"] not in (0, 1)
    ):
        text = f"expected 0 or 1, got {message['weight']!r}"
        findings.append(place.finding("wrong-type", f"{field}.weight", text))
    elif contradicts_itself(message):
        text = f"train is {message['train']} and weight is {message['weight']}"
        fix = "keep one of train and weight; both say whether the message has loss"
        findings.append(place.finding("train-weight", f"{field}.weight", text, fix))
    return findings


def _unknown_role(role: str, message: Mapping[str, Any], field: str, place: Place) -> Finding:
    meant = FOREIGN_ROLES.get(role.lower())
    hint = f"did you mean {meant!r}?" if meant else nearest(role, ROLES)
    return place.finding("unknown-role", f"{field}.role", f"unknown role {role!r}; {hint}")


def _check_content(message: Mapping[str, Any], field: str, place: Place) -> list[Finding]:
    if "content" not in message and "value" in message:
        fix = 'rename "from" to "role" and "value" to "content" (ShareGPT layout)'
        return [place.finding("missing", f"{field}.content", "missing", fix)]
    if isinstance(message.get("content"), list):
        broken = [
            place.finding("content-part", f"{field}.content[{index}]", said, parts.FIX)
            for index, said in parts.broken_parts(message["content"])
        ]
        if broken:
            return broken
        message = parts.with_text(message)
    calls = message.get("role") == "assistant" and any(map(message.get, CALLS))
    if calls and message.get("content") is None:  # beside calls no content and null are one
        return []
    if "content" in message and message["content"] is None:
        return [place.finding("null", f"{field}.content", "null and no tool_calls")]
    may_be_blank = calls or message.get("role") == "tool"  # a tool may answer with nothing
    return check_text(message, "content", f"{field}.content", place, may_be_blank=may_be_blank)


def _check_others(message: Mapping[str, Any], field: str, place: Place) -> list[Finding]:
    """A template prints Python's form of what is no text here: {'a': 1}, True."""
    return [
        place.finding("wrong-type", f"{field}.{key}", f"expected string, got {kind(message[key])}")
        for key, kinds in OTHER_TEXTS.items()
        if key in message and kind(message[key]) not in kinds
    ]


def _check_calls(message: Mapping[str, Any], field: str, place: Place) -> list[Finding]:
    calls = message.get("tool_calls")
    path = f"{field}.tool_calls"
    if message.get(OLD_CALL) is not None:
        text = "the old layout of a call, which no template prints"
        fix = 'write tool_calls: [{"type": "function", "function": {"name": "...", ...}}]'
        return [place.finding("function-call", f"{field}.{OLD_CALL}", text, fix)]
    if calls is None:
        return []
    if not isinstance(calls, list):
        return [place.finding("wrong-type", path, f"expected array, got {kind(calls)}")]
    if calls and message.get("role") != "assistant":
        return [place.finding("role-order", path, "only an assistant message can call tools")]
    return [
        place.finding("wrong-type", f"{path}[{index}]", f"expected object, got {kind(call)}")
        for index, call in enumerate(calls)
        if not isinstance(call, dict)
    ]


def misspelled(
    holder: Mapping[str, Any], known: Collection[str], place: Place, *, within: str = ""
) -> list[Finding]:
    """Findings for fields that mean one of the known ones; `within` is the path of the holder."""
    return [
        place.finding("unknown-field", f"{within}{name}", f"not read; did you mean {right!r}?")
        for name, right in meant(holder, known)
    ]


def check_order(
    messages: Sequence[Mapping[str, Any]], paths: Sequence[str], place: Place, *, whole: str
) -> list[Finding]:
    """Findings for the order of roles; `paths` name the messages, `whole` the conversation.

    Two questions in a row are for the template to take or refuse (tokenize asks it); a second
    answer in a row answers nothing.
    """
    roles = [message["role"] for message in messages]
    findings = []
    for index in range(1, len(roles)):
        if roles[index] == roles[index - 1] == "assistant":
            text = "two assistant messages in a row"
            findings.append(place.finding("role-order", f"{paths[index]}.role", text))
    if "assistant" not in roles:
        text = "no assistant message, nothing to train on"
        findings.append(place.finding("no-assistant", whole, text))
    elif roles[-1] != "assistant":
        text = f"the last message is from {roles[-1]}, expected assistant"
        findings.append(place.finding("last-not-assistant", f"{paths[-1]}.role", text))
    return findings
