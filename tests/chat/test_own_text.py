"""Text inside an answer that is neither the row's nor of the template's source is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError

HEAD = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.role == 'assistant' %}"
END = (
    "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Refused = Callable[..., Finding]


@pytest.fixture
def refused(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> Refused:
    def run(body: str, *contents: str) -> Finding:
        with pytest.raises(InputError) as caught:
            tokenized(make_template(HEAD + body + END), talk(*(contents or ("hi", "yo"))))
        finding: Finding = caught.value.findings[0]
        return finding

    return run


@pytest.fixture
def trained(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> Callable[..., str]:
    def run(body: str, answer: str = "yo", **more: Any) -> str:
        template = make_template(HEAD + body + END)
        messages = talk("hi", answer)
        messages[1] |= more
        (example,) = tokenized(template, messages).examples
        ids = [label for label in example.labels if label != -100]
        return str(template.tokenizer.decode(ids))

    return run


@pytest.mark.parametrize(
    ("body", "around"),
    [
        ("{{ m.content|float }}{{ m.content }}", "0.0 ... <|end|>"),  # 0.0yo
        ("{{ m.content }}{{ m.content|int }}", "... 0<|end|>"),
        ("{{ loop.index ~ ': ' ~ m.content }}", "2: ... <|end|>"),
        ("{{ m.content ~ m.content }}", "... yo<|end|>"),
        ("Re {{ messages[loop.index0 - 1].content }}: {{ m.content }}", "Rehi: ... <|end|>"),
        ("{{ [m.role, m.content] }}", "['assistant',' ... ']<|end|>"),  # Python's own spelling
    ],
)
def test_a_computed_text_is_refused(refused: Refused, body: str, around: str) -> None:
    finding = refused(body)
    assert (finding.rule, finding.file, finding.line) == ("computed-text", "triage", 3)
    assert finding.field == "messages[1]"
    assert finding.message == (
        f"the template base computes text of the answer: {around!r} around it stands neither in "
        "the row nor in the template's source"
    )


@pytest.mark.parametrize(
    ("body", "answer", "want"),
    [
        ("{{ '<think>\n\n</think>\n\n' + m.content }}", "yo", "<think>\n\n</think>\n\nyo<|end|>"),
        ("{{ ' ' ~ m.content|trim ~ ' ' }}", "yo", " yo <|end|>"),
        ("Sure: {{ m.content }}", "e:", "Sure: e:<|end|>"),  # the answer is a part of that text
        ("{{ m.role|title + '=' }}{{ m.content }}", "yo", "Assistant=yo<|end|>"),
        ("{{ bos_token + m.content }}", "yo", "<s>yo<|end|>"),
        ("{{ m.content|tojson }}", "yo", '"yo"<|end|>'),
        ("{{ m.content|tojson }}", " yo\n", '" yo\\n"<|end|>'),
        ("{{ strftime_now('%d %b %Y') }}: {{ m.content }}", "yo", "26 Jul 2024: yo<|end|>"),
    ],
)
def test_what_the_source_says_is_trained(
    trained: Callable[..., str], body: str, answer: str, want: str
) -> None:
    """Inference must write it after the prompt."""
    assert trained(body, answer) == want


def test_reasoning_counts_as_the_rows_own(trained: Callable[..., str]) -> None:
    body = "{{ '<think>' ~ m.reasoning_content ~ '</think>' ~ m.content }}"
    assert trained(body, reasoning_content="yo yo") == "<think>yo yo</think>yo<|end|>"


def test_a_body_may_begin_inside_a_constant(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    """As gpt-oss: the prompt ends in the middle of the header."""
    text = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>' + m.content + '<|end|>' }}"
        "{% else %}{{ '<|assistant|>final:' + m.content + '<|end|>\n---' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    template = make_template(text)
    (example,) = tokenized(template, talk("hi", "yo")).examples
    ids = [label for label in example.labels if label != -100]
    assert template.tokenizer.decode(ids) == "final:yo<|end|>"


@pytest.mark.parametrize(
    ("width", "answer", "rule"), [(8, "ok then", "rewritten"), (2, "four", "rewritten")]
)
def test_a_template_that_wraps_contents_is_refused_by_name(
    refused: Refused, width: int, answer: str, rule: str
) -> None:
    finding = refused(f"{{{{ m.content|wordwrap({width}) }}}}", "hi", answer)
    assert (finding.rule, finding.field) == (rule, "messages[1]")
    assert finding.message == "the template rewrites the content, so no mark can follow it"
    assert finding.fix == "pin a template that prints contents as they are"


def test_a_stop_that_begins_in_the_blanks_of_an_answer(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    """The second derivation adds what the last answer lacks of a stop, and keeps its blanks."""
    text = (
        "{% for m in messages %}{{ '### ' + m.role + ':\n' + m.content + '\n\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### assistant:\n' }}{% endif %}"
    )
    template = make_template(text)
    for answer in ("yo", "yo\n", "yo\r\n", "yo \u00a0"):
        (example,) = tokenized(template, talk("hi", answer), "\n\n###").examples
        ids = [label for label in example.labels if label != -100]
        assert template.tokenizer.decode(ids) == f"{answer}\n\n###"
