"""Stops come from the template, the tokenizer, the generation config and the declaration."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat.stops import StopSet, stop_sequences
from hashtune.errors import InputError


def test_printed_stop_comes_before_the_eos_of_the_tokenizer(
    make_template: Callable[..., Any], sources: dict[str, str]
) -> None:
    template = make_template(sources["chatml"])
    found = stop_sequences(template, eos_ids=[], declared=[])
    end, eos = (template.encode(text)[0] for text in ("<|end|>", "</s>"))
    assert found == StopSet(("<|end|>", "</s>"), ((end,), (eos,)), ())
    assert found.single_ids == sorted([end, eos])


def test_generation_config_and_declared_stops(
    make_template: Callable[..., Any], sources: dict[str, str]
) -> None:
    template = make_template(sources["headers"])
    (user,) = template.encode("<|user|>")
    found = stop_sequences(template, eos_ids=[user], declared=["\nUser:"])
    assert found.texts == ("\nUser:", "</s>", "<|user|>")
    assert found.declared == ("\nUser:",)
    assert found.ids[0] == tuple(template.encode("\nUser:"))
    assert len(found.ids[0]) == 6
    assert found.single_ids == sorted([template.encode("</s>")[0], user])


def test_eos_after_the_very_last_answer_is_not_the_stop(make_template: Callable[..., Any]) -> None:
    text = (
        "{% for m in messages %}{{ m.content + '<|end|>\n' }}{% endfor %}"
        "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
    )
    found = stop_sequences(make_template(text), eos_ids=[], declared=[])
    assert found.texts == ("<|end|>", "</s>")


def test_what_precedes_a_known_stop_is_no_stop(make_template: Callable[..., Any]) -> None:
    text = "{% for m in messages %}{{ m.content + '<|end|></s>' }}{% endfor %}"
    found = stop_sequences(make_template(text), eos_ids=[], declared=[])
    assert found.texts == ("</s>",)


def test_special_tokens_come_before_ordinary_added_ones(make_template: Callable[..., Any]) -> None:
    text = "{% for m in messages %}{{ m.content + '</think><|end|>' }}{% endfor %}"
    found = stop_sequences(make_template(text), eos_ids=[], declared=[])
    assert found.texts == ("<|end|>", "</s>")


CALLS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + c.function.arguments|tojson + END }}{% endfor %}"
    "{% if not m.tool_calls %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("'<|user|><|tool|>'", ("<|end|>", "<|tool|>", "</s>")),  # the last special one
        ("'</think>'", ("<|end|>", "</s>")),  # not special
        ("'<|tool|><|end|>'", ("<|end|>", "</s>")),  # a known stop is there
        ("raise_exception('no calls')", ("<|end|>", "</s>")),
    ],
)
def test_what_ends_a_tool_call_is_a_stop(
    make_template: Callable[..., Any], end: str, expected: tuple[str, ...]
) -> None:
    template = make_template(CALLS.replace("END", end))
    assert stop_sequences(template, eos_ids=[], declared=[]).texts == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a<|end|>b</s>", (1, 8)), ("a</s><|end|>", (1, 5)), ("abc", None), ("", None)],
)
def test_first_stop(text: str, expected: tuple[int, int] | None) -> None:
    assert StopSet(("<|end|>", "</s>"), ((1,), (2,))).first(text) == expected


def test_the_longest_of_two_that_start_together() -> None:
    assert StopSet(("<e>", "<e>\n"), ((1,), (1, 2))).first("x<e>\n") == (1, 5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "{% if m.role == 'user' %}{{ m.content }}{% endif %}",
            "the template prints nothing of it",
        ),
        ("{{ m.content }}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}", "(no)"),
    ],
)
@pytest.mark.parametrize(("name", "file"), [("base", None), ("conf/t.jinja", "conf/t.jinja")])
def test_c21_a_template_without_answers_is_named(
    make_template: Callable[..., Any], body: str, said: str, name: str, file: str | None
) -> None:
    text = "{% for m in messages %}{{ '<|' + m.role + '|>' }}" + body + "<|end|>{% endfor %}"
    template = dataclasses.replace(make_template(text), name=name)
    with pytest.raises(InputError) as caught:
        stop_sequences(template, eos_ids=[], declared=[])
    (finding,) = caught.value.findings
    assert (finding.file, finding.field) == (file, "tokenizer.chat_template")
    assert finding.message.startswith(f"the template {name} takes no plain chat: messages[1]")
    assert finding.message.endswith(said)


def test_a_template_of_one_question_has_stops(make_template: Callable[..., Any]) -> None:
    text = (
        "{% if messages|length > 2 %}{{ raise_exception('one question only') }}{% endif %}"
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    found = stop_sequences(make_template(text), eos_ids=[], declared=[])
    assert found.texts == ("<|end|>", "</s>")
