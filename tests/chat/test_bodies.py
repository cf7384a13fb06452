"""Bodies by the per-turn definition: exact spans on invented templates."""

from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat.bodies import Body, _beyond, bodies, layouts
from hashtune.errors import Finding, InputError


@pytest.fixture
def spans(
    make_template: Callable[..., Any], stops_of: Callable[..., Any]
) -> Callable[..., list[list[str]]]:
    """The body texts of every layout."""

    def find(text: str, messages: list[Any], *declared: str, **policies: Any) -> list[list[str]]:
        stored = policies.get("mismatch") == "as_stored"
        template = make_template(text, stored=stored, **policies.pop("kwargs", {}))
        turns = [k for k, m in enumerate(messages) if m["role"] == "assistant"]
        chosen = {"unstable": "error", "mismatch": "error", **policies}
        plan = layouts(template, messages, stops_of(template, *declared), turns=turns, **chosen)
        return [[part.text[b.start : b.end] for b in part.bodies] for part in plan]

    return find


def refused(call: Callable[[], Any]) -> list[Finding]:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value.findings


def test_exact_characters(
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
) -> None:
    template = make_template(sources["chatml"])
    stops = stops_of(template)
    messages = talk("hi", "yo", "more", "ok")
    both = bodies(template, messages, stops, loss_on="assistant", mismatch="error")
    # <|start|>user\nhi<|end|>\n is 24 characters, <|start|>assistant\n is 19
    assert both == [Body(1, 43, 52), Body(3, 98, 107)]
    last = bodies(template, messages, stops, loss_on="last_assistant", mismatch="error")
    assert last == [Body(3, 98, 107)]
    messages[1]["weight"] = 0
    assert bodies(template, messages, stops, loss_on="assistant", mismatch="error") == last


@pytest.mark.parametrize("answer", ["end", "|", "<", "yo\n", "  yes \n", "assistant", "user\nhi"])
def test_answers_that_look_like_the_template(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any], answer: str
) -> None:
    assert spans(sources["chatml"], talk("hi", answer)) == [[f"{answer}<|end|>"]]


def test_trimming_template(spans: Callable[..., Any], talk: Callable[..., Any]) -> None:
    text = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim + '<|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    assert spans(text, talk("hi", "  yes \n")) == [["yes<|end|>"]]


def test_unstable_template(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    messages = talk("red?", "cherry", "green?", "lime")
    (finding,) = refused(lambda: spans(sources["thinker"], messages))
    assert (finding.rule, finding.field) == ("unstable", "messages[1]")
    assert "inference sees '<think>\\n\\n</think>\\ncherr" in finding.message
    assert "the whole conversation has 'cherry<|end|>" in finding.message
    block = "<think>\n\n</think>\n"
    assert spans(sources["thinker"], messages, unstable="split") == [
        [f"{block}cherry<|end|>"],
        [f"{block}lime<|end|>"],
    ]
    assert spans(sources["thinker"], messages, unstable="last") == [[f"{block}lime<|end|>"]]
    quick = spans(sources["thinker"], messages, kwargs={"quick": True})
    assert quick == [["cherry<|end|>", "lime<|end|>"]]


def test_mismatch_is_refused_with_its_cure(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    (finding,) = refused(lambda: spans(sources["opener"], talk("hi", "yo")))
    assert finding.rule == "mismatch"
    assert "inference sees '<think>\\n', the data 'yo<|end|>\\n'" in finding.message
    # control tokens are one id: start user\n hi end \n start assistant\n = 1+5+2+1+1+1+10
    assert "(token 21)" in finding.message
    assert "tokenizer.template_kwargs {'enable_thinking': False}" in str(finding.fix)
    cured = spans(sources["opener"], talk("hi", "yo"), kwargs={"enable_thinking": False})
    assert cured == [["yo<|end|>"]]


def test_mismatch_policies(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    opener, plain = sources["opener"], talk("hi", "yo", "and?", "ok")
    assert spans(opener, plain, mismatch="as_stored") == [["yo<|end|>", "ok<|end|>"]]
    found = refused(lambda: spans(opener, plain, mismatch="as_prompted"))
    assert [finding.rule for finding in found] == ["open-reasoning", "open-reasoning"]
    reasoned = talk("hi", "<think>\nadd\n</think>\n\n4", "and?", "add</think>5")
    assert spans(opener, reasoned, mismatch="as_prompted") == [
        ["add\n</think>\n\n4<|end|>"],
        ["add</think>5<|end|>"],
    ]


def test_as_prompted_refuses_what_it_cannot_write(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    messages = talk("hi", "yo")
    messages[1]["reasoning_content"] = "add"
    (finding,) = refused(lambda: spans(sources["opener"], messages, mismatch="as_prompted"))
    assert (finding.rule, finding.field) == ("as-prompted", "messages[1].reasoning_content")


def test_a_block_that_the_template_closes_at_once_is_no_answer(
    spans: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    text = (
        "{% for m in messages %}{{ '<|start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
        "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
        "{{ m.content + '<|end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant\n<think>\n' }}{% endif %}"
    )
    assert [f.rule for f in refused(lambda: spans(text, talk("hi", "yo")))] == ["mismatch"]
    assert spans(text, talk("hi", "yo"), mismatch="as_stored") == [["yo<|end|>"]]
    messages = talk("hi", "yo")
    messages[1]["reasoning_content"] = "add"
    assert spans(text, messages) == [["add\n</think>\n\nyo<|end|>"]]


def test_next_header_is_the_stop(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    messages = talk("hi", "yo", "more", "ok")
    (finding, _) = refused(lambda: spans(sources["headers"], messages))
    assert finding.rule == "no-stop"
    assert "no end-of-turn token after the last assistant content" in finding.message
    declared = ("<|user|>", "<|tool|>")
    assert spans(sources["headers"], messages, *declared) == [["yo<|user|>", "ok<|user|>"]]
    call = {"function": {"name": "now", "arguments": "{}"}}
    calling = [messages[0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert spans(sources["headers"], calling, *declared) == [["{now{}}<|tool|>"]]
    answered = [*calling, {"role": "tool", "content": "noon"}, messages[1]]
    expected = [["{now{}}<|tool|>", "yo<|user|>"]]
    assert spans(sources["headers"], answered, *declared) == expected


def test_declared_stop_is_appended_where_nothing_is_printed(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    assert spans(sources["headers"], talk("hi", "yo"), "<|end|>") == [["yo<|end|>"]]
    messages = talk("hi", "yo", "more", "ok")
    found = refused(lambda: spans(sources["headers"], messages, "<|end|>"))
    assert [(f.rule, f.field) for f in found] == [("unstable", "messages[1]")]


def test_tool_calls_are_part_of_the_body(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    call = {"function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = talk("hi", "Look:")
    messages[1]["tool_calls"] = [call, call]
    body = '<call>weather {"city": "Oslo"}</call>'
    assert spans(sources["tools"], messages) == [[f"Look:{body}{body}<|end|>"]]
    messages[1]["content"] = None
    assert spans(sources["tools"], messages) == [[f"{body}{body}<|end|>"]]


def test_template_that_ignores_calls(
    spans: Callable[..., Any], sources: dict[str, str], talk: Callable[..., Any]
) -> None:
    messages = talk("hi", "")
    messages[1]["tool_calls"] = [{"function": {"name": "now", "arguments": {}}}]
    (finding,) = refused(lambda: spans(sources["chatml"], messages))
    assert (finding.rule, finding.field) == ("dropped", "messages[1]")


@pytest.mark.parametrize(
    ("tail", "region", "expected"),
    [
        ("}]\n", "}]\n<e>", "<e>"),
        ("", " <e>", " <e>"),
        ("}}]", '}, "id": 7}]\n<e>', "\n<e>"),  # as history the call has an id
        ("x", "y<e>", "<e>"),
    ],
)
def test_what_follows_a_turn_is_not_its_form_as_history(
    tail: str, region: str, expected: str
) -> None:
    assert _beyond(tail, region, region.index("<e>")) == expected
