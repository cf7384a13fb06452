"""The turns of ShareGPT, {"from", "value", ...}, as messages.

Names are told apart without case. The value of a `function_call` is the call as JSON (or a list of
calls) and becomes tool calls; an `observation` is what the tool gave back.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hashtune.data.messages import Place
from hashtune.errors import Finding
from hashtune.records import Message
from hashtune.strict_json import StrictJsonError, parse_strict

FUNCTION_CALL = "function_call"
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    FUNCTION_CALL: "assistant",
}
KEYS = {"from": "role", "value": "content"}
_FIX = 'write {"name": "...", "arguments": {...}} as the value'


def message(turn: Mapping[str, Any]) -> Message:
    """The turn as a message; other fields are kept as written."""
    name = _name(turn)
    made = {KEYS.get(key, key): value for key, value in turn.items()}
    if name in ROLES:
        made["role"] = ROLES[name]
    value = turn.get("value")
    if name == FUNCTION_CALL and isinstance(value, str) and not any(_faults(value)):
        made |= {"content": "", "tool_calls": _calls(value)}
    return made


def broken_calls(turns: Sequence[Any], place: Place) -> list[Finding]:
    """A finding for each `function_call` whose value is no call."""
    found = []
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict) or _name(turn) != FUNCTION_CALL:
            continue
        field = f"conversations[{index}].value"
        if isinstance(turn.get("value"), str):  # another type has a finding of its own
            said = list(_faults(turn["value"]))
            if not said and turn.get("tool_calls"):
                said = ["a call, and the turn has tool_calls too"]
            found += [place.finding("function-call", field, text, _FIX) for text in said]
    return found


def _name(turn: Mapping[str, Any]) -> str:
    name = turn.get("from")
    return name.lower() if isinstance(name, str) else ""


def _faults(value: str) -> Iterator[str]:
    try:
        calls = parse_strict(value)
    except StrictJsonError as error:
        yield f"is no JSON ({error})"
        return
    calls = calls if isinstance(calls, list) else [calls]
    if not calls:
        yield "holds no call"
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            yield "is no call: an object with a name"
        elif not isinstance(call.get("arguments"), dict | str | None):
            yield "the arguments of the call are no object"
        elif others := sorted(call.keys() - {"name", "arguments", "id"}):
            yield f"the call holds {', '.join(map(repr, others))} too"


def _calls(value: str) -> list[dict[str, Any]]:
    """The calls of a sound value, in the layout of tool_calls."""
    calls = parse_strict(value)
    made = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = {"name": call["name"], "arguments": call.get("arguments")}
        named = {"id": call["id"]} if "id" in call else {}
        made.append({"type": "function", **named, "function": function})
    return made
