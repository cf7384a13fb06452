"""Calls whose name the template looks up, as the built-in tools of Llama 3.1, printed as code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat.template import Template
from hashtune.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "chat_templates"
BUILTIN = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}"
    "{% for c in m.tool_calls or [] %}{% set f = c.function %}{% if f.name in ['search', 'now'] %}"
    "{{ f.name + '.call(' }}{% for k, v in f.arguments|items %}"
    "{{ k + '=\"' + v + '\"' }}{{ ', ' if not loop.last }}{% endfor %}{{ ')' }}"
    "{% else %}{{ '{\"' + f.name + '\": ' + f.arguments|tojson + '}' }}{% endif %}"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def calls(*named: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "id": "abcdefghi", "function": {"name": name, "arguments": given}}
        for name, given in named
    ]


def conversation(*named: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": calls(*named)},
        {"role": "tool", "content": "sun", "name": named[0][0], "tool_call_id": "abcdefghi"},
        {"role": "assistant", "content": "yo"},
    ]


def runs(template: Any, done: Any) -> list[str]:
    (example,) = done.examples
    text = template.tokenizer.decode([i for i in example.labels if i != -100])
    return str(text).replace("<|end|>", "<|end|>\0").split("\0")[:-1]


@pytest.mark.parametrize(
    ("named", "want"),
    [
        ([("search", {})], "search.call()"),
        ([("search", {"q": "oslo"})], 'search.call(q="oslo")'),
        ([("search", {"q": 'a "b"', "r": ""})], 'search.call(q="a "b"", r="")'),
        ([("now", {}), ("now", {})], "now.call()now.call()"),
        ([("search", {"q": "x"}), ("now", {})], 'search.call(q="x")now.call()'),
        ([("weather", {}), ("search", {})], '{"weather": {}}search.call()'),
        (
            [("weather", {"n": 7}), ("search", {"q": "x"})],
            '{"weather": {"n": 7}}search.call(q="x")',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_call_is_trained_as_it_is_printed(
    make_template: Callable[..., Template],
    tokenized: Callable[..., Any],
    named: list[tuple[str, dict[str, Any]]],
    want: str,
) -> None:
    template = make_template(BUILTIN)
    done = tokenized(template, conversation(*named))
    assert runs(template, done) == [f"{want}<|end|>", "yo<|end|>"]


def test_an_argument_that_the_template_cannot_print_is_its_own_refusal(
    make_template: Callable[..., Template], tokenized: Callable[..., Any]
) -> None:
    with pytest.raises(InputError) as caught:
        tokenized(make_template(BUILTIN), conversation(("search", {"n": 7})))
    finding = caught.value.findings[0]
    assert (finding.rule, finding.field) == ("template-refuses", "messages[1].role")
    assert "raises TypeError" in finding.message


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
@pytest.mark.parametrize(
    ("given", "want"), [({}, "search.call()"), ({"query": "oslo"}, 'search.call(query="oslo")')]
)
def test_builtin_tools_of_llama_3_1(
    real: Any, tokenized: Callable[..., Any], given: dict[str, Any], want: str
) -> None:
    template = real("meta-llama-llama-3_1-8b-instruct", builtin_tools=["search"])
    (example,) = tokenized(template, conversation(("search", given))).examples
    trained = template.tokenizer.decode([i for i in example.labels if i != -100])
    assert trained == f"<|python_tag|>{want}<|eom_id|>yo<|eot_id|>"
