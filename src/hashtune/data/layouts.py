"""From one row of a declared schema to messages, with every broken rule under the row's own names.

messages           {"messages": [{"role", "content", ...}, ...]}
instruction        {"instruction", "input"?, "output", "system"?}
sharegpt           {"conversations": [{"from", "value", ...}, ...], "system"?}; see sharegpt.py
prompt_completion  {"prompt", "completion", "system"?}, each a text or a list of messages
text               {"text"}: a plain text, one message of the role records.TEXT

Other fields of a message (tool_calls, reasoning_content, train, ...) are kept as written.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hashtune.data import sharegpt
from hashtune.data.messages import (
    Place,
    check_each,
    check_message,
    check_messages,
    check_order,
    check_text,
    is_blank,
    kind,
)
from hashtune.errors import Finding, nearest
from hashtune.parts import with_text
from hashtune.records import TEXT, Message
from hashtune.spec.rows import Schema

Converted = tuple[list[Message], list[Finding]]


def to_messages(row: Mapping[str, Any], schema: Schema, place: Place) -> Converted:
    """(messages, findings); the messages mean nothing when there are findings.

    Contents that are lists of text parts become one text; beside tool calls an absent one is null.
    """
    messages, findings = _converted(row, schema, place)
    return messages if findings else [_with_content(message) for message in messages], findings


def _with_content(message: Message) -> Message:
    """With one text, or with null where there are only calls."""
    return with_text(message) if "content" in message else {**message, "content": None}


def _converted(row: Mapping[str, Any], schema: Schema, place: Place) -> Converted:
    if schema == "messages":
        if "messages" not in row:
            return [], [place.finding("missing", "messages", "missing")]
        return row["messages"], check_messages(row["messages"], place)
    convert = {
        "instruction": _from_instruction,
        "sharegpt": _from_sharegpt,
        "prompt_completion": _from_prompt,
        "text": _from_text,
    }[schema]
    return convert(row, place)


def _from_instruction(row: Mapping[str, Any], place: Place) -> Converted:
    findings = []
    for key in ("instruction", "output"):
        findings += check_text(row, key, key, place)
    for key in ("input", "system"):  # null and "" both mean: there is none
        findings += _check_optional(row, key, place)
    if findings:
        return [], findings
    extra = row.get("input")
    prompt = row["instruction"]
    if extra is not None and not is_blank(extra):
        prompt = f"{prompt}\n\n{extra}"
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": row["output"]},
    ]
    return _system(row) + messages, []


def _check_optional(row: Mapping[str, Any], key: str, place: Place) -> list[Finding]:
    if row.get(key) is None:
        return []
    return check_text(row, key, key, place, may_be_blank=True)


def _system(row: Mapping[str, Any]) -> list[Message]:
    system = row.get("system")
    if system is None or is_blank(system):
        return []
    return [{"role": "system", "content": system}]


def _with_system(row: Mapping[str, Any], messages: list[Message], first: str, place: Place) -> Any:
    """The messages behind the row's system text; `first` is the path of the first one."""
    system = _system(row)
    if system and messages[0]["role"] == "system":
        text = f"{first} is a system message too"
        return [], [place.finding("role-order", "system", text)]
    return system + messages, []


def _from_sharegpt(row: Mapping[str, Any], place: Place) -> Converted:
    turns = row.get("conversations")
    findings = _check_optional(row, "system", place)
    if "conversations" not in row:
        return [], [*findings, place.finding("missing", "conversations", "missing")]
    if isinstance(turns, list):
        findings += [
            place.finding("mixed-schema", f"conversations[{index}]", f"has {key!r}", _USE_MESSAGES)
            for index, turn in enumerate(turns)
            for key in ("role", "content")
            if isinstance(turn, dict) and key in turn
        ]
    messages: Any = turns
    if isinstance(turns, list):
        findings += sharegpt.broken_calls(turns, place)
        messages = [sharegpt.message(turn) if isinstance(turn, dict) else turn for turn in turns]
    told = {turn[0] for finding in findings if (turn := _TURN.match(finding.field or ""))}
    findings += [
        _sharegpt_words(finding, turns)
        for finding in (check_each if told else check_messages)(messages, place)
        if _turn_of(finding) not in told
    ]
    if findings:
        return [], findings
    result: Converted = _with_system(row, messages, "conversations[0]", place)
    return result


_TURN = re.compile(r"conversations\[\d+\]")


def _turn_of(finding: Finding) -> str | None:
    """The turn that a finding about messages is about."""
    turn = _TURN.match((finding.field or "").replace("messages", "conversations", 1))
    return turn[0] if turn else None


_USE_MESSAGES = "declare schema: messages with fields: {messages: conversations}"


def _sharegpt_words(finding: Finding, turns: Any) -> Finding:
    """The finding about messages under the names that the row uses."""
    field = (finding.field or "").replace("messages", "conversations", 1)
    if field.endswith(".role"):
        field = field.removesuffix("role") + "from"
    else:
        field = re.sub(r"\.content(?=\[|$)", ".value", field)
    message = finding.message
    place = re.search(r"\[(\d+)\]", field)
    if finding.rule == "unknown-role" and place:
        role = turns[int(place[1])]["from"]
        message = f"unknown name {role!r}; {nearest(role, sharegpt.ROLES)}"
    return replace(finding, field=field, message=message)


def _from_prompt(row: Mapping[str, Any], place: Place) -> Converted:
    findings: list[Finding] = []
    messages: list[Message] = []
    paths: list[str] = []
    for key, role in (("prompt", "user"), ("completion", "assistant")):
        value = row.get(key)
        if isinstance(value, list):
            if not value:
                findings.append(place.finding("empty", key, "no messages"))
            for index, message in enumerate(value):
                paths.append(f"{key}[{index}]")
                findings += check_message(message, paths[-1], place)
            messages += [_untrained(message) for message in value] if key == "prompt" else value
            continue
        if value is None or isinstance(value, str):
            findings += check_text(row, key, key, place)
        else:
            text = f"expected string or array, got {kind(value)}"
            findings.append(place.finding("wrong-type", key, text))
        paths.append(key)
        messages.append({"role": role, "content": value})
    findings = findings or check_order(messages, paths, place, whole="completion")
    findings = _check_optional(row, "system", place) + findings
    if findings:
        return [], findings
    result: Converted = _with_system(row, messages, paths[0], place)
    return result


def _untrained(message: Any) -> Any:
    """A prompt's own answers are context, unless the row says otherwise."""
    answer = isinstance(message, dict) and message.get("role") == "assistant"
    if not answer or "train" in message or "weight" in message:
        return message
    return {**message, "train": False}


def _from_text(row: Mapping[str, Any], place: Place) -> Converted:
    findings = check_text(row, "text", "text", place)
    return [] if findings else [{"role": TEXT, "content": row["text"]}], findings
