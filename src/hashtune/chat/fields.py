"""The texts of a message: those that a template should print, and every other one."""

from collections.abc import Callable, Iterator
from typing import Any

from hashtune.chat.messages import REASONING_FIELDS, functions_of, is_plain, parse_arguments
from hashtune.records import Message

NAMES = ("name", "tool_call_id")  # some templates print them


def fields_of(message: Message) -> Iterator[tuple[str, str]]:
    """The texts that a message gives to the template, as (path, text), blank ones left out."""
    if is_plain(message):
        if message["content"].strip():
            yield "content", message["content"]
        return
    reasoning = next((field for field in REASONING_FIELDS if message.get(field)), None)
    for field in ("content", reasoning):
        if field and str(message.get(field) or "").strip():
            yield field, message[field]
    for index, function in enumerate(functions_of(message)):
        path = f"tool_calls[{index}]"
        yield f"{path}.name", function["name"]
        yield from _leaves(f"{path}.arguments", parse_arguments(function.get("arguments")))


def printable(message: Message) -> Iterator[tuple[str, str]]:
    """Those of fields_of, and names and ids."""
    yield from fields_of(message)
    if is_plain(message):
        return
    for name in NAMES:
        if isinstance(message.get(name), str):
            yield name, message[name]
    for index, call in enumerate(message.get("tool_calls") or []):
        if isinstance(call.get("id"), str):
            yield f"tool_calls[{index}].id", call["id"]


def change_texts(message: Message, change: Callable[[str], str]) -> Message:
    """The message (in normal form) with every text but its role changed, keys included."""
    return {
        key: value if key == "role" else _changed(value, change) for key, value in message.items()
    }


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _changed(item, change) for key, item in value.items()}
    return value


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", key)
            yield from _leaves(f"{path}.{key}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}[{index}]", item)
    elif isinstance(value, str) and value.strip():
        yield path, value
