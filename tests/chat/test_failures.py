"""Templates that raise on data, that take texts only, or that print another text each time."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat.failures import RenderError
from hashtune.chat.pinned import load_template
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.spec.schema import TokenizerSpec
from hashtune.writers import sha256_bytes

HEAD = "{% for m in messages %}{{ '<|' + m.role + '|>' }}"
END = "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
FINE = HEAD + "{{ m.content }}" + END
RAISING = {  # what raises where the content is "x 0", and what is said of it
    "{{ 1 // m.content[2]|int }}": "ZeroDivisionError: ",
    "{% for i in range(200000) %}{% endfor %}": "OverflowError: Range too big",
    "{{ '{}{}'.format(m.content) }}": "IndexError: tuple index out of range",
    "{{ m.content|groupby('a')|first|attr('x') ~ (m.content.y.z) }}": "'str object' has no",
    "{{ m.content + 1 }}": "TypeError: can only concatenate str",
    "{{ m.content.index('absent') }}": "ValueError: substring not found",
    "{{ '{x}'.format() }}": "KeyError: 'x'",
    "{{ m.content.encode('no such one') }}": "LookupError: unknown encoding",
    "{{ m.content|items|list }}": "TypeError: Can only get item pairs from a mapping",
    "{{ [m.content]|indent }}": "AttributeError: 'list' object has no attribute",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}": "RecursionError: maximum",
    "{{ m.content.__class__.__mro__ }}": "access to attribute '__class__' of 'str' object is",
    "{{ m.content.format.__globals__['x'] }}": "'__globals__'",
    "{% include 'other' %}": "TypeError: no loader",
}


def settings(text: str) -> TokenizerSpec:
    return TokenizerSpec(
        chat_template="t.jinja",
        sha256=sha256_bytes(text.encode("utf-8")),
        added_tokens=[],
        template_kwargs={},
        date="2024-07-26",
        stops=[],
        unstable="error",
        mismatch="error",
        special_in_content="error",
        system="error",
    )


@pytest.mark.parametrize(("body", "said"), RAISING.items(), ids=[*RAISING.values()])
def test_what_a_template_raises_is_a_finding_of_the_row(
    make_template: Callable[..., Template],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    body: str,
    said: str,
) -> None:
    text = HEAD + "{% if m.content == 'x 0' %}" + body + "{% endif %}{{ m.content }}" + END
    template = make_template(text)
    assert len(tokenized(template, talk("hi", "yo")).examples) == 1
    with pytest.raises(InputError) as caught:
        tokenized(template, talk("hi", "yo", "x 0", "ok"))
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file, finding.line) == ("template-refuses", "triage", 3)
    assert finding.field == "messages[2].role"
    assert said in finding.message
    assert "pin another template than base" in str(finding.fix)
    if "Error: " in said:
        assert finding.message.startswith("the template base raises " + said)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, AssertionError])
def test_planted_what_is_no_template_fault_is_not_caught(
    make_template: Callable[..., Template], talk: Callable[..., Any], error: type[BaseException]
) -> None:
    def planted(*_: Any) -> str:
        raise error

    template = make_template(FINE)
    vars(template)["_list_roles"] = frozenset()
    vars(template)["_compiled"] = planted
    with pytest.raises(error):
        template.render(talk("hi"))


def test_only_the_call_of_the_template_is_guarded(
    make_template: Callable[..., Template], talk: Callable[..., Any]
) -> None:
    template = make_template(FINE)
    vars(template)["_list_roles"] = frozenset()
    vars(template)["_compiled"] = lambda *_: {}["a fault of ours"]
    with pytest.raises(KeyError):
        template.render(talk("hi"))


@pytest.mark.parametrize(
    ("filtered", "trained"),
    [("indent(2)", "a b\n  c"), ("wordwrap(30)", "a b\nc"), ("trim", "a b\nc")],
)
def test_filters_that_take_texts_only(
    make_template: Callable[..., Template],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    filtered: str,
    trained: str,
) -> None:
    """The probe of lists makes them raise, which says that the template takes no lists."""
    template = make_template(HEAD + "{{ m.content|" + filtered + " }}" + END)
    (example,) = tokenized(template, talk("hi", "a b\nc")).examples
    ids = [label for label in example.labels if label != -100]
    assert template.tokenizer.decode(ids) == trained + "<|end|>"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{{ ['a', 'b']|random }}", "it uses random"),
        ("{{ lipsum(1) }}", "it uses lipsum"),
        ("{{ messages[0].items }}", "it prints the address of an object"),
        ("{{ [messages]|map('upper') }}", "it prints the address of an object"),  # a generator
    ],
)
def test_a_template_that_prints_another_text_each_time(
    byte_tokenizer: Callable[..., Any], tmp_path: Path, body: str, said: str
) -> None:
    text = FINE + body
    (tmp_path / "t.jinja").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_template(byte_tokenizer(), settings(text), root=tmp_path)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("unstable-render", "tokenizer.chat_template")
    assert finding.message == f"the template t.jinja prints another text each time: {said}"


def test_an_address_in_a_content_is_a_content(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    said = "<generator object f at 0x7f1c2d3e4f50>"
    (example,) = tokenized(make_template(FINE), talk(said, said)).examples
    assert len([label for label in example.labels if label != -100]) == len(said) + 1


def test_planted_a_render_of_chance_is_seen_by_rendering_again(
    make_template: Callable[..., Template], talk: Callable[..., Any]
) -> None:
    template, drawn = make_template(FINE), random.Random(1)
    vars(template)["_list_roles"] = frozenset()
    vars(template)["_compiled"] = lambda *_: drawn.choice("ab")
    with pytest.raises(InputError, match="unstable-render"):
        template.render(talk("hi"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FINE + "{{ 1 / 0 }}", "the template t.jinja raises ZeroDivisionError: division by zero"),
        ("\n\n{{ m.content", "the template t.jinja cannot be parsed, line 3: "),
        ("{{ strftime_now('%Y') }}\n{% for %}", "the template t.jinja cannot be parsed, line 2: "),
        (FINE + "{{ x|absent }}", "the template t.jinja cannot be parsed, line 1: No filter named"),
    ],
)
def test_a_template_that_renders_nothing_is_refused_at_once(
    byte_tokenizer: Callable[..., Any], tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "t.jinja").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_template(byte_tokenizer(), settings(text), root=tmp_path)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("template-refuses", "tokenizer.chat_template")
    assert finding.message.startswith(said)
    assert finding.fix == "correct the template, or pin another one"


def test_a_switch_that_raises_is_no_cure(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    text = (
        "{% if thinking is defined %}{{ 1 // 0 }}{% endif %}"
        + FINE
        + "{% if add_generation_prompt %}<think>{% endif %}"
    )
    with pytest.raises(InputError) as caught:
        tokenized(make_template(text), talk("hi", "yo"))
    (finding,) = caught.value.findings
    assert finding.rule == "mismatch"
    assert str(finding.fix).startswith("set tokenizer.mismatch")


def test_a_render_error_keeps_its_cause() -> None:
    error = RenderError(ZeroDivisionError("division\n by zero"))
    assert str(error) == "division by zero"
    assert isinstance(error.cause, ZeroDivisionError)
