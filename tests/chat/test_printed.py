"""Every field in a place of its own: equal fields, numbers and cut contents that a template drops.

Each template here is a planted fault, or a right one that must not be refused.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat import contents, outline, printed
from hashtune.chat.examples import Tokenized
from hashtune.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
END = "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
HEAD = "{% for m in messages %}<|{{ m.role }}|>"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
ALL = HEAD + "{{ m.content }}" + CALLS + "{{ c.function.arguments|tojson }}{% endfor %}" + END
FIRST_CALL = ALL.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
VALUES = (
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ VALUE }};{% endfor %}{% endfor %}"
)
PAIRS = HEAD + "{{ m.content }}" + CALLS + VALUES + END
NO_TOOL = HEAD + "{% if m.role != 'tool' %}{{ m.content }}{% endif %}" + CALLS
NO_TOOL += "{{ c.function.arguments|tojson }}{% endfor %}" + END
FIRST_USER = HEAD + "{% if m.role != 'user' or loop.first %}{{ m.content }}{% endif %}" + END
NO_REPEAT = HEAD + (
    "{% if loop.index0 < 2 or m.content != messages[loop.index0 - 2].content %}"
    "{{ m.content }}{% endif %}" + END
)
LAST_SYSTEM = (  # as mistral-nemo: the system text stands before the last question only
    "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>"
    "{% if loop.last and m.role == 'user' and messages[0].role == 'system' %}"
    "{{ messages[0].content }} {% endif %}{{ m.content }}" + END
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [{"type": "function", "function": {"name": "fn", "arguments": c}} for c in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {}), **more}


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


N, OK = "tool_calls[0].arguments.n", "tool_calls[0].arguments.ok"
SECOND = "tool_calls[1]"
LOST: dict[str, tuple[str, list[Any], list[str]]] = {  # the template, the messages, the fields
    "second call, other number": (
        FIRST_CALL,
        [user("hi"), answer("", {"n": 71}, {"n": 82})],
        [f"[1].{SECOND}.name", f"[1].{SECOND}.arguments.n"],
    ),
    "second call, the same": (
        FIRST_CALL,
        [user("hi"), answer("", {"n": 71}, {"n": 71})],
        [f"[1].{SECOND}.name", f"[1].{SECOND}.arguments.n"],
    ),
    "second question, the same": (
        FIRST_USER,
        [user("hi"), answer("yo"), user("hi"), answer("z")],
        ["[2].content"],
    ),
    "a question that repeats one": (  # marks make it another: the count finds it
        NO_REPEAT,
        [user("hi"), answer("yo"), user("hi"), answer("z")],
        ["[2].content"],
    ),
    "tool result inside the answer": (
        NO_TOOL,
        [user("q"), answer("", {"n": "3"}), tool("3"), answer("3 is it")],
        ["[2].content"],
    ),
    "a number": (PAIRS.replace("VALUE", "'?'"), [user("q"), answer("", {"n": 7})], [f"[1].{N}"]),
    "zero": (
        PAIRS.replace("VALUE", "v or ''"),
        [user("q"), answer("", {"n": 0, "ok": False})],
        [f"[1].{N}", f"[1].{OK}"],
    ),
    "a boolean": (
        PAIRS.replace("VALUE", "v if v is not boolean else ''"),
        [user("q"), answer("", {"n": 7, "ok": True})],
        [f"[1].{OK}"],
    ),
    "cut at the end": (
        HEAD + "{{ m.content[:8] }}" + END,
        [user("hello there"), answer("a long answer")],
        ["[0].content", "[1].content"],
    ),
    "cut at the start": (
        HEAD + "{{ m.content[-8:] }}" + END,
        [user("hello there"), answer("short")],
        ["[0].content"],
    ),
    "cut, and another holds it": (
        HEAD + "{{ m.content[:8] if m.role == 'tool' else m.content }}" + END,
        [user("the long result"), answer("x"), tool("the long result"), answer("z")],
        ["[2].content"],
    ),
    "system equal to the question": (
        LAST_SYSTEM,
        [{"role": "system", "content": "hi"}, user("hi"), answer("yo")],
        ["[0].content"],
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_field_is_refused_by_name(
    make_template: Callable[..., Any], tokenized: Callable[..., Tokenized], name: str
) -> None:
    source, messages, fields = LOST[name]
    with pytest.raises(InputError) as caught:
        tokenized(make_template(source, stored=name.startswith("system")), messages)
    found = [(finding.rule, finding.field) for finding in caught.value.findings]
    assert found == [("dropped", f"messages{field}") for field in fields]
    assert {(finding.file, finding.line) for finding in caught.value.findings} == {("triage", 3)}


@pytest.mark.parametrize(
    "name", ["second call, other number", "second question, the same", "a boolean", "zero"]
)
def test_planted_without_the_places_it_is_trained_silently(
    monkeypatch: pytest.MonkeyPatch,
    make_template: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    name: str,
) -> None:
    source, messages, _ = LOST[name]
    monkeypatch.setattr(contents, "lost_fields", lambda *_: {})
    assert tokenized(make_template(source), messages).examples


def test_the_finding_says_what_is_lost(
    make_template: Callable[..., Any], tokenized: Callable[..., Tokenized]
) -> None:
    source, messages, _ = LOST["second call, other number"]
    with pytest.raises(InputError) as caught:
        tokenized(make_template(source), messages)
    assert [finding.message for finding in caught.value.findings] == [
        f"the template drops {what!r}: the trained span holds it, if at all, only in the place of"
        " another field"
        for what in ("fn", "82")
    ]


PYTHON = PAIRS.replace("VALUE", "v")
STRIPPED = HEAD + "{{ m.content|trim }}" + END
SYSTEM_LAST = LAST_SYSTEM.replace("loop.last and m.role == 'user'", "loop.first")
KEPT: list[tuple[str, list[Any], str]] = [  # the template, the messages, the trained text
    (
        ALL,
        [user("hi"), answer("", {"n": 71}, {"n": 71}), tool("71"), answer("71")],
        'fn{"n": 71}fn{"n": 71}<|end|>71<|end|>',
    ),
    (
        ALL,
        [user("n"), answer("", {"n": [1, 1, 1.0, {"m": True}], "a": None, "b": "1 \\ ü"})],
        'fn{"n": [1, 1, 1.0, {"m": true}], "a": null, "b": "1 \\\\ ü"}<|end|>',
    ),
    (PYTHON, [user("q"), answer("", {"n": 0.5, "ok": False})], "fnn=0.5;ok=False;<|end|>"),
    (STRIPPED, [user(" hi "), answer("hi\n"), user("hi"), answer(" hi")], "hi<|end|>hi<|end|>"),
    (NO_REPEAT, [user("hi"), answer("yo"), user("ho"), answer("z")], "yo<|end|>z<|end|>"),
    (SYSTEM_LAST, [{"role": "system", "content": "hi"}, user("hi"), answer("hi")], "hi<|end|>"),
    # what others look for stands in the contents
    (ALL, [user("zqhole1qz zqf0z 8675309100000"), answer("zqf1z", {"n": 86753091})], ""),
]


@pytest.mark.parametrize(("source", "messages", "expected"), KEPT)
def test_a_right_template_is_not_refused(
    make_template: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    source: str,
    messages: list[Any],
    expected: str,
) -> None:
    template = make_template(source)
    (example,) = tokenized(template, messages).examples
    trained = template.tokenizer.decode([label for label in example.labels if label != -100])
    assert trained == (expected or 'zqf1zfn{"n": 86753091}<|end|>')


def test_plain_rows_are_proven_without_a_render(
    monkeypatch: pytest.MonkeyPatch,
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    """One outline for each order of roles; a fault in it leads to the slow proof, not past it."""
    template = make_template(sources["chatml"])
    asked: list[int] = []

    def slow(*_: Any) -> dict[Any, Any]:
        asked.append(1)
        return {}

    monkeypatch.setattr(contents, "lost_fields", slow)
    done = tokenized(template, talk("hi", "yo"))
    assert template.outlines == {
        ("user", "assistant"): [
            ("<|start|>user\n", 0),
            ("<|end|>\n<|start|>assistant\n", 1),
        ]
    }
    assert tokenized(template, talk("hi", "hi")).altered == done.altered == [] == asked
    template.outlines["user", "assistant"] = [("<|start|>user\n", 0)]
    assert tokenized(template, talk("hi", "yo")).examples and asked == [1]
    monkeypatch.setattr(outline, "_outline", lambda *_: None)
    assert tokenized(template, talk("hi", "yo")).examples and asked == [1, 1]


def test_marks_that_the_template_refuses_leave_the_count(
    monkeypatch: pytest.MonkeyPatch,
    make_template: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    source, messages, fields = LOST["second call, other number"]
    monkeypatch.setattr(printed, "_render", lambda *_: None)
    with pytest.raises(InputError) as caught:
        tokenized(make_template(source), messages)
    assert [finding.field for finding in caught.value.findings] == [
        f"messages{field}" for field in fields
    ]
    (example,) = tokenized(make_template(ALL), messages).examples
    assert example.labels[-1] != -100


CALL = {"type": "function", "id": "abcdefgh1", "function": {"name": "fn", "arguments": {"n": 71}}}
OTHER = {"type": "function", "id": "abcdefgh2", "function": {"name": "fn", "arguments": {"n": 82}}}
STORED = {"mismatch": "as_stored"}
TWO = [
    user("hi"),
    {"role": "assistant", "content": "", "tool_calls": [CALL, OTHER]},
    {**tool("r1"), "tool_call_id": "abcdefgh1", "name": "fn"},
    {**tool("r2"), "tool_call_id": "abcdefgh2", "name": "fn"},
    answer("done"),
]
SAME = [{"role": "system", "content": "hi"}, user("hi"), answer("yo")]
PUBLISHED: list[tuple[str, list[Any], dict[str, Any], list[str] | str]] = [
    ("gigachat3-10b-a1_8b", TWO, {}, "dropped"),  # it prints the first call only
    (
        "qwen-qwen2_5-7b-instruct",
        TWO,
        {},
        [
            '<tool_call>\n{"name": "fn", "arguments": {"n": 71}}\n</tool_call>\n'
            '<tool_call>\n{"name": "fn", "arguments": {"n": 82}}\n</tool_call><|im_end|>',
            "done<|im_end|>",
        ],
    ),
    ("mistralai-mistral-nemo-instruct-2407", SAME, STORED, "dropped"),
    ("mistralai-mistral-nemo-instruct-2407", SAME, {"mismatch": "as_prompted"}, ["yo</s>"]),
    ("trl_gemma3", SAME, {}, ["yo<end_of_turn>"]),  # the system text before the question
]


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
@pytest.mark.parametrize(("name", "messages", "settings", "expected"), PUBLISHED)
def test_published_templates(
    outcome: Callable[..., Any],
    name: str,
    messages: list[Any],
    settings: dict[str, Any],
    expected: list[str] | str,
) -> None:
    assert outcome(name, messages, settings) == expected
