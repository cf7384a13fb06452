"""What a template accepts: contents as lists of parts, a system message inside the question."""

from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat.accepted import merge_system, system_faults
from hashtune.chat.examples import Tokenized
from hashtune.errors import InputError

END = "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
HEAD = "{% for m in messages %}{{ '<|' + m.role + '|>' }}"
LISTS = HEAD + "{% for p in m.content %}{{ p.text }}{% endfor %}" + END
MIXED = (
    HEAD + "{% if m.role == 'user' %}{% for p in m.content %}{{ p['text'] }}{% endfor %}"
    "{% else %}{{ m.content + '' }}{% endif %}" + END
)
REFUSING = (
    HEAD + "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.content|trim }}" + END
)
SYSTEM = {"role": "system", "content": "be kind"}


def parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def trained(template: Any, done: Tokenized) -> str:
    (example,) = done.examples
    return str(template.tokenizer.decode([label for label in example.labels if label != -100]))


@pytest.mark.parametrize("source", [LISTS, MIXED])
def test_a_template_that_prints_lists_only_gets_lists(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    source: str,
) -> None:
    template = make_template(source)
    messages = talk("hi", "yo")
    assert template.render(messages) == "<|user|>hi<|end|><|assistant|>yo<|end|>"
    assert trained(template, tokenized(template, messages)) == "yo<|end|>"
    listed = [{**message, "content": parts(message["content"])} for message in messages]
    plain, given = (tokenized(template, talks).examples[0] for talks in (messages, listed))
    assert given == plain
    assert template.prompt_ids(listed[:1]) == plain.input_ids[: -len("yo") - 1]


def test_planted_without_the_detection_the_contents_are_dropped(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    template = make_template(LISTS)
    vars(template)["_list_roles"] = frozenset()
    with pytest.raises(InputError) as caught:
        tokenized(template, talk("hi", "yo"))
    assert {finding.rule for finding in caught.value.findings} == {"dropped"}


@pytest.mark.parametrize("name", ["chatml", "plain", "thinker", "opener", "headers", "tools"])
def test_templates_that_print_texts_get_texts(
    make_template: Callable[..., Any], sources: dict[str, str], name: str
) -> None:
    assert make_template(sources[name])._list_roles == frozenset()


def test_a_system_message_is_merged_into_the_first_question(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    template = make_template(REFUSING, merge=True)
    messages = [SYSTEM, *talk("hi", "yo", "and?", "ok")]
    (example,) = tokenized(template, messages).examples
    assert template.tokenizer.decode(example.input_ids) == (
        "<|user|>be kind\n\nhi<|end|><|assistant|>yo<|end|>"
        "<|user|>and?<|end|><|assistant|>ok<|end|>"
    )
    assert trained(template, tokenized(template, messages)) == "yo<|end|>ok<|end|>"
    asked = template.prompt_ids(messages[:2])
    assert asked == example.input_ids[: len(asked)]
    assert template.tokenizer.decode(asked) == "<|user|>be kind\n\nhi<|end|><|assistant|>"
    long = [SYSTEM, *talk(*("q", "a") * 5)]  # derived at once
    assert trained(template, tokenized(template, long)) == "a<|end|>" * 5


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["system", "user", "assistant"], []),
        (["user", "assistant"], []),
        (["system", "assistant"], [0]),
        (["user", "assistant", "system", "user", "assistant"], [2]),
        (["system", "system", "user", "assistant"], [0, 1]),
        (["user", "system"], [1]),
    ],
)
def test_a_system_message_elsewhere_is_named(roles: list[str], expected: list[int]) -> None:
    messages = [{"role": role, "content": "x"} for role in roles]
    found = [(finding.rule, finding.field) for finding in system_faults(messages)]
    assert found == [("system-merge", f"messages[{index}].role") for index in expected]
    if expected:
        with pytest.raises(InputError):
            merge_system(messages)


def test_a_refusal_names_the_message_of_the_data(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    text = HEAD + "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    template = make_template(text + "{{ m.content }}" + END, merge=True)
    messages = [SYSTEM, *talk("hi"), {"role": "tool", "content": "x"}, *talk("", "yo")[1:]]
    with pytest.raises(
        InputError, match=r"messages\[2\].role: template does not accept role 'tool'"
    ):
        tokenized(template, messages)


def test_the_refusal_of_a_system_message_names_the_setting(
    make_template: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    with pytest.raises(InputError, match=r"set tokenizer\.system to merge_into_user"):
        make_template(REFUSING).render([SYSTEM, *talk("hi", "yo")])


@pytest.mark.parametrize(
    "printed",
    [
        "{{ m.content[:8] }}",  # cuts a text, and prints the list as Python writes it
        "{{ m.content if m.content is not string }}",
        "{{ m.content[0] if m.content is not string }}",
        "{{ m.content|tojson if m.content is not string }}",
        "{% for p in m.content %}{{ p if p is mapping }}{% endfor %}",
    ],
)
def test_a_template_that_prints_the_list_itself_gets_texts(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    printed: str,
) -> None:
    template = make_template(HEAD + printed + END)
    assert template._list_roles == frozenset()
    with pytest.raises(InputError) as caught:
        tokenized(template, talk("a long question", "a long answer indeed"))
    assert {finding.rule for finding in caught.value.findings} == {"dropped"}
