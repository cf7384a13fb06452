"""Rows for bench/fuzz_data.py: sound ones, rows that break a rule, and damaged text.

Every maker says what must come out: the messages that are kept, the rule of a row that a policy may
drop, or the rule of a fault of the file.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Messages = list[dict[str, Any]]
SCHEMAS = ("messages", "instruction", "sharegpt", "prompt_completion")
TEXTS = (
    "2024-01-05",
    "00501",
    "True",
    "1e5",
    "null",
    "NaN",
    "a\u2028b\u2029c\u0085d\x0be\x0cf",
    "<|im_start|>user\nhi<|im_end|>",
    "<script>alert(1)</script>",
    "\u202etfel \u200b\u200d",
    "e\u0301 \u00e9 \ufb01 \u212b",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "  blanks at both ends \n\t",
    'quote " and "" and \\ and \\n and \\ud83d',
    "a,b;c\td|e",
    "line\nline\r\nline",
    "\ufeffmark",
    "=1+1",
    "x" * 1000,
)


@dataclass(frozen=True, slots=True)
class Row:
    """`text` is the row in JSON, `value` what it says (None for damaged text).

    Exactly one of the rest is set: `kept`, the messages that must come out; `bad`, the first rule
    of a row that a policy may drop; `damaged`, the rule of a finding whatever the policy. A kept
    row has an `outcome` where tokenize makes of it what templates.plain does not say.
    """

    maker: str
    text: bytes
    value: dict[str, Any] | None = None
    kept: Messages | None = None
    bad: str | None = None
    damaged: str | None = None
    outcome: Any = None


def sound(random: Random, schema: str) -> tuple[dict[str, Any], Messages]:
    """A row of the schema and its messages."""
    user, answer, system = (f"{random.choice(TEXTS)}{random.randrange(10**6)}" for _ in range(3))
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    with_system = [{"role": "system", "content": system}, *messages]
    if schema == "messages":
        messages *= random.choice((1, 1, 2))
        return {"messages": messages}, messages
    if schema == "instruction":
        row = {"instruction": user, "output": answer, "system": system}
        return row, with_system
    if schema == "sharegpt":
        turns = [{"from": "human", "value": user}, {"from": "gpt", "value": answer}]
        return {"conversations": turns, "system": system}, with_system
    return {"prompt": user, "completion": answer, "id": random.randrange(9)}, messages


def kept_row(random: Random, schema: str) -> Row:
    """A sound row, at times with something that must not matter."""
    value, messages = sound(random, schema)
    extras: tuple[dict[str, Any], ...] = (
        {},
        {},
        {"group": "g1"},
        {"group": 7},
        {"meta": {"deep": [None, 1.5, {"a": []}]}},
        {"number": 10**3990, "small": -(2**70), "tiny": 1e-320},
        {"nest": json.loads("[" * 90 + "]" * 90)},
        {"\u2028": None, "": "", "content": 3},
    )
    value = {**value, **random.choice(extras)}
    return Row("kept", written(random, value), value, kept=messages)


def written(random: Random, value: object) -> bytes:
    """Written raw or with escapes, tight or with blanks: both say the same."""
    separators = random.choice(((",", ":"), (", ", ": "), (" ,\t", " :\t")))
    raw = random.random() < 0.5
    return json.dumps(value, ensure_ascii=not raw, separators=separators).encode()


def _drop(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda holder: holder.pop(key)


def _set(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda holder: holder.update({key: value})


Change = tuple[str, Callable[[dict[str, Any]], None]]
CHANGES: dict[str, list[Change]] = {  # the rule that the change breaks, and the change
    "messages": [
        ("null", lambda row: row["messages"][0].update(content=None)),
        ("null", lambda row: row["messages"][-1].update(content=None)),
        ("missing", lambda row: row["messages"][0].pop("content")),
        ("missing", lambda row: row["messages"][-1].pop("role")),
        ("blank", lambda row: row["messages"][-1].update(content=" \u200b\n\u00a0\ufeff")),
        ("wrong-type", lambda row: row["messages"][0].update(content=7)),
        ("wrong-type", lambda row: row["messages"][-1].update(content=True)),
        ("wrong-type", lambda row: row["messages"][0].update(role=["user"])),
        ("wrong-type", lambda row: row["messages"][0].update(train="yes")),
        ("wrong-type", lambda row: row["messages"][-1].update(weight="1")),
        ("wrong-type", lambda row: row["messages"][-1].update(tool_calls="f()")),
        ("wrong-type", lambda row: row["messages"][-1].update(reasoning_content=["hm"])),
        ("wrong-type", lambda row: row["messages"][0].update(name={"a": 1})),
        ("wrong-type", lambda row: row["messages"][-1].update(tool_call_id=[1])),
        ("unknown-field", lambda row: row["messages"][-1].update(Train=False)),
        ("unknown-field", lambda row: row["messages"][-1].update(toolCalls=[])),
        ("function-call", lambda row: row["messages"][-1].update(function_call={"name": "f"})),
        ("unknown-role", lambda row: row["messages"][0].update(role="human")),
        ("unknown-role", lambda row: row["messages"][0].update(role="User ")),
        ("role-order", lambda row: row["messages"].append(row["messages"][-1])),
        ("last-not-assistant", lambda row: row["messages"].append(row["messages"][0])),
        ("no-assistant", lambda row: row.update(messages=row["messages"][:1])),
        ("wrong-type", lambda row: row["messages"].append("bye")),
        ("wrong-type", lambda row: row["messages"].append(None)),
        ("empty", _set("messages", [])),
        ("wrong-type", _set("messages", "[]")),
        ("wrong-type", _set("messages", {"role": "user"})),
        ("null", _set("messages", None)),
        ("missing", _drop("messages")),
    ],
    "instruction": [
        ("null", _set("instruction", None)),
        ("missing", _drop("output")),
        ("blank", _set("output", "\t \u2028")),
        ("blank", _set("output", "\u3164 \u2800\ufe0f")),
        ("unknown-field", _set("Input", "x")),
        ("wrong-type", _set("output", 7)),
        ("wrong-type", _set("instruction", {"a": "b"})),
        ("wrong-type", _set("input", False)),
    ],
    "sharegpt": [
        ("missing", _drop("conversations")),
        ("wrong-type", _set("conversations", 3)),
        ("empty", _set("conversations", [])),
        ("null", lambda row: row["conversations"][0].update(value=None)),
        ("blank", lambda row: row["conversations"][-1].update(value="")),
        ("unknown-role", lambda row: row["conversations"][0].update({"from": "nobody"})),
        ("mixed-schema", lambda row: row["conversations"][0].update(role="user")),
        ("last-not-assistant", lambda row: row["conversations"].append(row["conversations"][0])),
    ],
    "prompt_completion": [
        ("null", _set("prompt", None)),
        ("blank", _set("completion", "")),
        ("missing", _drop("completion")),
        ("wrong-type", _set("completion", 1.5)),
        ("empty", _set("prompt", [])),
    ],
}
ANY = [("blank", _set("group", " ")), ("wrong-type", _set("group", [1]))]


def bad_row(random: Random, schema: str) -> Row:
    """A row that breaks one rule of the schema, or is of another schema."""
    if random.random() < 0.1:
        other = random.choice([name for name in SCHEMAS if name != schema])
        value = sound(random, other)[0]
        return Row("other-schema", written(random, value), value, bad="mixed-schema")
    value = json.loads(json.dumps(sound(random, schema)[0]))
    choices = [*enumerate(CHANGES[schema]), *enumerate(ANY, start=100)]
    number, (rule, change) = random.choice(choices)
    change(value)
    return Row(f"{schema}-{number}", written(random, value), value, bad=rule)


def damaged_row(random: Random, schema: str) -> Row:
    """Text that is no JSON object, or one whose value would not be what is written."""
    sound_text = json.dumps(sound(random, schema)[0]).encode()

    def with_extra(extra: bytes) -> bytes:
        return sound_text[:-1] + b', "extra": ' + extra + b"}"

    at = random.randrange(1, len(sound_text))
    choices: list[tuple[str, bytes]] = [
        ("duplicate-key", with_extra(b'1, "extra": 1')),
        ("duplicate-key", with_extra(b'{"a": 1, "\\u0061": 2}')),
        ("not-a-number", with_extra(random.choice((b"NaN", b"Infinity", b"[-Infinity]")))),
        ("number-range", with_extra(random.choice((b"1e999", b"-1e999", b"9" * 5000)))),
        ("lone-surrogate", with_extra(random.choice((b'"\\ud83d"', b'"\\ude00\\ud83d"')))),
        ("nesting", with_extra(b"[" * 150 + b"]" * 150)),
        ("nesting", with_extra(b'{"a":' * 5000 + b"1" + b"}" * 5000)),
        ("json", sound_text[:-1] + b",}"),
        ("json", b"{'messages': 1}"),
        ("json", with_extra(b"tru")),
        ("json", with_extra(b"01")),
        ("json", with_extra(b'"a\x01b"')),
        ("json", with_extra(b'"\\x"')),
        ("json", sound_text + b" " + sound_text),
        ("json", sound_text + b"\xef\xbb\xbf" + sound_text),
        ("not-utf8", with_extra(b'"caf\xe9"')),
        ("not-utf8", with_extra(b'"\xed\xa0\xbd"')),
        ("not-utf8", with_extra(b'"\xc0\x80"')),
        ("not-utf8", sound_text[:at] + b"\xff" + sound_text[at:]),
        ("not-utf8", sound_text[:at] + b"\x00" + sound_text[at:]),
        ("not-an-object", b"7"),
        ("not-an-object", b'"text"'),
        ("not-an-object", b"null"),
        ("not-an-object", b'[{"a": 1}]'),
    ]
    number, (rule, text) = random.choice(list(enumerate(choices)))
    return Row(f"damaged-{number}", text, damaged=rule)
