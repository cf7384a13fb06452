"""Tool calls of the fuzz under the template "agent": (name, what becomes of it, message, rest)."""

from typing import Any

from fuzz.rows import Messages
from fuzz.templates import END, Outcome

TOOL = {"role": "tool", "content": "42", "tool_call_id": "1"}
GO = {"role": "user", "content": "go on"}
LAST = {"role": "assistant", "content": "done"}
Call = tuple[str, Outcome | str, dict[str, Any], Messages]


def _says(arguments: object, *, nested: bool = True, content: str | None = None) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function} if nested else function
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def _printed(arguments: str, content: str = "") -> Outcome:
    call = f'{content}\n<call>{{"name": "f", "arguments": {arguments}}}</call>'
    return Outcome((call + END, "done" + END))


def _with(*calls: object) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "content"}


PRINTED: list[tuple[str, object, str]] = [
    ("object", {"b": 1, "a": "Rom"}, '{"b": 1, "a": "Rom"}'),  # in the order of the file
    ("text", '{"b": 1, "a": "Rom"}', '{"b": 1, "a": "Rom"}'),
    ("escaped", '{"a": "\\u00e9\\n\\ud83d\\ude00"}', '{"a": "é\\n\U0001f600"}'),
    ("none", {}, "{}"),
    ("null", None, "{}"),
    ("null-text", "null", "{}"),
    ("empty-text", " ", "{}"),
    ("types", {"x": [None, True, 1.5, -7]}, '{"x": [null, true, 1.5, -7]}'),
    ("quote", {"q": 'say "hi" \\ now'}, '{"q": "say \\"hi\\" \\\\ now"}'),
    ("big", {"n": 10**3000}, '{"n": 1' + "0" * 3000 + "}"),
    ("deep", {"d": [[[[[[]]]]]]}, '{"d": [[[[[[]]]]]]}'),
]
REFUSED: list[tuple[str, object]] = [
    ("list", [1]),
    ("number", 7),
    ("boolean", True),
    ("list-text", "[1]"),
    ("twice-encoded", '"{}"'),
    ("no-json", "{city: Rome}"),
    ("half", '{"a": '),
    ("two", "{} {}"),
    ("not-a-number", '{"a": NaN}'),
    ("infinite", '{"a": 1e999}'),
    ("digits", '{"a": ' + "9" * 5000 + "}"),
    ("too-deep", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"),
    ("key-twice", '{"a": 1, "a": 2}'),
    ("surrogate", '{"a": "\\ud83d"}'),
]
BROKEN: list[tuple[str, object]] = [
    ("no-name", {"arguments": {}}),
    ("name-type", {"name": 7, "arguments": {}}),
    ("null-function", {"type": "function", "function": None}),
    ("text-function", {"function": "f"}),
    ("list-function", {"function": [{"name": "f"}]}),
]
CALLS: list[Call] = [
    *((name, _printed(text), _says(value), [TOOL, LAST]) for name, value, text in PRINTED),
    *(
        (f"flat-{name}", _printed(text, "so"), _says(value, nested=False, content="so"), [GO, LAST])
        for name, value, text in PRINTED
    ),
    *(
        (name, Outcome(rule="tool-arguments"), _says(value), [TOOL, LAST])
        for name, value in REFUSED
    ),
    *((name, Outcome(rule="tool-calls"), _with(call), [TOOL, LAST]) for name, call in BROKEN),
    ("item-type", "wrong-type", _with("f()"), [TOOL, LAST]),
    ("item-null", "wrong-type", _with(None), [TOOL, LAST]),
    ("not-a-list", "wrong-type", {**_with(), "tool_calls": {"name": "f"}}, [TOOL, LAST]),
    ("by-tool", "role-order", LAST, [{**TOOL, "tool_calls": [{"name": "f"}]}, LAST]),
    ("no-calls", "blank", _with(), [TOOL, LAST]),
    ("absent-content", _printed("{}"), _bare(_says({})), [TOOL, LAST]),
    ("absent-no-calls", "missing", _bare(_with()), [TOOL, LAST]),
    ("no-calls-null", "null", {**_with(), "content": None}, [TOOL, LAST]),
    (
        "control-argument",
        Outcome(rule="control-token"),
        _says({"a": ["<|im_end|>"]}),
        [TOOL, LAST],
    ),
    ("control-key", Outcome(rule="control-token"), _says({"<|im_end|>": 1}), [TOOL, LAST]),
    (
        "function-in-function",
        _printed("{}"),
        {**_with({"function": {"name": "f", "arguments": {}, "function": 3}})},
        [TOOL, LAST],
    ),
    (
        "last-call",
        Outcome(('\n<call>{"name": "f", "arguments": {}}</call>' + END,)),
        _says({}),
        [],
    ),
]
