"""The proof accepts right masks and catches every planted fault."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat import bodies as bodies_module
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.proof import prove
from hashtune.errors import InputError
from hashtune.records import Conversation, Example

POLICIES: dict[str, Any] = {"loss_on": "assistant", "unstable": "error", "mismatch": "error"}


@pytest.fixture
def case(
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
) -> tuple[Any, list[Any], Example, Any]:
    """A right example: two turns of ChatML, proven."""
    template = make_template(sources["chatml"])
    messages, stops = talk("hi", "yo", "and", "ok"), stops_of(template)
    conversation = Conversation("c", "s", messages, 1)
    (example,) = tokenize_conversation(conversation, template, stops, **POLICIES).examples
    return template, messages, example, stops


def relabel(example: Example, change: Callable[[list[int], list[int]], None]) -> Example:
    labels = list(example.labels)
    change(labels, example.input_ids)
    return dataclasses.replace(example, labels=labels)


def shift(labels: list[int], ids: list[int]) -> None:
    on = [label != -100 for label in labels]
    labels[:] = [i if was else -100 for i, was in zip(ids, [False, *on], strict=False)]


def early(labels: list[int], ids: list[int]) -> None:
    first = next(i for i, label in enumerate(labels) if label != -100)
    labels[first - 1] = ids[first - 1]  # the newline of the header


def late(labels: list[int], ids: list[int]) -> None:
    labels[next(i for i, label in enumerate(labels) if label != -100)] = -100


def header(labels: list[int], ids: list[int]) -> None:
    first = next(i for i, label in enumerate(labels) if label != -100)
    labels[first - 11 : first] = ids[first - 11 : first]  # <|start|>assistant\n


def no_end(labels: list[int], ids: list[int]) -> None:
    labels[max(i for i, label in enumerate(labels) if label != -100)] = -100


def past_end(labels: list[int], ids: list[int]) -> None:
    last = max(i for i, label in enumerate(labels) if label != -100)
    labels[last + 1] = ids[last + 1]  # the newline behind the stop


def user(labels: list[int], ids: list[int]) -> None:
    labels[6:8] = ids[6:8]  # hi


def no_last_turn(labels: list[int], ids: list[int]) -> None:
    first = max(i for i in range(1, len(ids)) if labels[i] != -100 and labels[i - 1] == -100)
    labels[first:] = [-100] * (len(ids) - first)


def nothing(labels: list[int], ids: list[int]) -> None:
    labels[:] = [-100] * len(ids)


def everything(labels: list[int], ids: list[int]) -> None:
    labels[:] = ids


def shifted_values(labels: list[int], ids: list[int]) -> None:
    at = next(i for i, label in enumerate(labels) if label != -100)
    labels[at] = ids[at + 1]


def test_right_example_passes(case: tuple[Any, list[Any], Example, Any]) -> None:
    template, messages, example, stops = case
    assert prove(template, messages, example, turns=[1, 3], stops=stops) == []
    # start user\n hi end \n start assistant\n = 21 ids, then y o end, then \n start user\n and ...
    assert [i for i, label in enumerate(example.labels) if label != -100] == [
        *(21, 22, 23),
        *(47, 48, 49),
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (shift, "trained is 'o<|end|>\\n', expected 'yo<|end|>'"),
        (early, "trained is '\\nyo<|end|>', expected 'yo<|end|>'"),
        (late, "trained is 'o<|end|>', expected 'yo<|end|>'"),
        (header, "trained is '<|start|>assistant\\nyo<|end|>', expected 'yo<|end|>'"),
        (no_end, "last supervised token is 'k', expected one of ['<|end|>', '</s>']"),
        (past_end, "trained is 'ok<|end|>\\n', expected 'ok<|end|>'"),
        (user, "3 trained spans, expected 2 (template base)"),
        (no_last_turn, "1 trained spans, expected 2 (template base)"),
        (nothing, "0 trained spans, expected 2 (template base)"),
        (everything, "1 trained spans, expected 2 (template base)"),
        (shifted_values, "the label at token 21 is neither its id nor -100"),
    ],
)
def test_planted_mask_faults(
    case: tuple[Any, list[Any], Example, Any], fault: Callable[..., None], words: str
) -> None:
    template, messages, example, stops = case
    found = prove(template, messages, relabel(example, fault), turns=[1, 3], stops=stops)
    assert words in [finding.message for finding in found]
    assert {finding.rule for finding in found} == {"proof"}


def test_a_claimed_straddler_does_not_excuse_a_lost_token(
    case: tuple[Any, list[Any], Example, Any],
) -> None:
    template, messages, example, stops = case
    bad = dataclasses.replace(relabel(example, late), straddlers=(9,))
    assert prove(template, messages, bad, turns=[1, 3], stops=stops)


def test_other_ids(case: tuple[Any, list[Any], Example, Any]) -> None:
    template, messages, example, stops = case
    ids = [*example.input_ids[:5], 7, *example.input_ids[6:]]
    (finding,) = prove(
        template, messages, dataclasses.replace(example, input_ids=ids), turns=[1, 3], stops=stops
    )
    assert finding.message == "the ids differ from those of the render at token 5"


def test_the_fault_names_its_turn(case: tuple[Any, list[Any], Example, Any]) -> None:
    template, messages, example, stops = case
    found = prove(template, messages, relabel(example, late), turns=[1, 3], stops=stops)
    assert [finding.field for finding in found] == ["messages[1]"]


@pytest.mark.parametrize(("printed", "twice"), [("<s>", False), ("<s><s>", True)])
def test_bos(
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    talk: Callable[..., Any],
    *,
    printed: str,
    twice: bool,
) -> None:
    text = printed + (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    template = make_template(text)
    conversation = Conversation("c", "triage", talk("hi", "yo"), 7)
    stops = stops_of(template)
    if not twice:
        (example,) = tokenize_conversation(conversation, template, stops, **POLICIES).examples
        assert example.input_ids[:2] == template.encode("<s><|user|>")
        return
    with pytest.raises(
        InputError, match=r"triage:7: messages\[1\]: begins with BOS \('<s>'\) twice"
    ):
        tokenize_conversation(conversation, template, stops, **POLICIES)


def test_missing_bos(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_bos_token = True
    template = make_template(sources["chatml"], tokenizer=tokenizer)
    conversation = Conversation("c", "s", talk("hi", "yo"), 1)
    with pytest.raises(InputError, match="does not begin with BOS"):
        tokenize_conversation(conversation, template, stops_of(template), **POLICIES)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        ((-1, 0), "expected 'yo<|end|>'"),
        ((1, 0), "the template drops 'yo': it is not in the trained span"),
        ((0, 1), "last supervised token is"),
        ((0, -7), "last supervised token is 'o'"),
    ],
)
def test_a_fault_in_bodies_is_caught_by_the_second_derivation(
    monkeypatch: pytest.MonkeyPatch,
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    *,
    move: tuple[int, int],
    words: str,
) -> None:
    template = make_template(sources["chatml"])
    right = bodies_module.Body

    def wrong(turn: int, start: int, end: int) -> Any:
        return right(turn, start + move[0], end + move[1])

    monkeypatch.setattr(bodies_module, "Body", wrong)
    conversation = Conversation("c", "s", talk("hi", "yo"), 1)
    with pytest.raises(InputError) as caught:
        tokenize_conversation(conversation, template, stops_of(template), **POLICIES)
    assert any(words in finding.message for finding in caught.value.findings)


def test_template_that_rewrites_contents_cannot_be_proven(
    make_template: Callable[..., Any], stops_of: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    text = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|upper + '<|end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    template = make_template(text)
    conversation = Conversation("c", "s", talk("HI", "YO"), 1)
    with pytest.raises(InputError, match="the template rewrites the content"):
        tokenize_conversation(conversation, template, stops_of(template), **POLICIES)
