"""Tails are found once for a kind of conversation, and never used where they do not fit."""

from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat import tails
from hashtune.chat.tails import tail

# The text after an answer depends on the question's length, which is no feature of a conversation.
COUNTING = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content }}"
    "{{ '!' if messages[0].content|length is odd and loop.last }}{{ '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The conversations whose tails were found by renders."""
    seen: list[Any] = []
    found = tails.after_fields

    def counted(template: Any, before: Any, message: Any, *, following: Any) -> str:
        seen.append([*before, message])
        return found(template, before, message, following=following)

    monkeypatch.setattr(tails, "after_fields", counted)
    return seen


def of(template: Any, messages: list[Any]) -> str:
    return tail(template, messages[:-1], messages[-1], template.render(messages))


def test_one_search_for_a_kind_of_conversation(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    asked: list[Any],
) -> None:
    template = make_template(sources["chatml"])
    assert [of(template, talk(*pair)) for pair in ("ab", "cd", "ef")] == ["<|end|>\n"] * 3
    assert asked == [talk("a", "b")]
    assert of(template, talk("a", "b", "c", "d")) == "<|end|>\n"
    assert of(template, talk("a", " b")) == "<|end|>\n"
    assert of(template, talk("a", "<think>b</think>c")) == "<|end|>\n"
    assert len(asked) == 4


def test_a_tail_that_does_not_fit_is_found_anew(
    make_template: Callable[..., Any], talk: Callable[..., Any], asked: list[Any]
) -> None:
    template = make_template(COUNTING)
    assert of(template, talk("odd", "yes")) == "!<|end|>\n"
    assert of(template, talk("even", "yes")) == "<|end|>\n"
    assert len(asked) == 2


def test_few_tails_are_kept(
    make_template: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    template = make_template(sources["chatml"])
    for length in range(1, tails.KEPT + 9):
        of(template, [{"role": f"r{length}", "content": "a"}, *talk("b", "c")])
    assert len(template.tails) == 8
