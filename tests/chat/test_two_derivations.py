"""Each of the two derivations alone catches five planted mask bugs, in short and long talks."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from hashtune.chat import bodies as bodies_module
from hashtune.chat import examples as examples_module
from hashtune.chat import proof as proof_module
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.labels import label
from hashtune.chat.proof import prove
from hashtune.chat.second import Expected
from hashtune.errors import InputError
from hashtune.records import Conversation, Example

POLICIES: dict[str, Any] = {"loss_on": "assistant", "unstable": "error", "mismatch": "error"}
Case = tuple[Any, list[Any], Example, Any]
Edges = list[tuple[int, int]]


@pytest.fixture(params=[2, 6], ids=["two turns", "six turns, at once"])
def case(
    request: pytest.FixtureRequest,
    make_template: Callable[..., Any],
    stops_of: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
) -> Case:
    template = make_template(sources["chatml"])
    messages, stops = talk(*["hi", "yo"] * request.param), stops_of(template)
    conversation = Conversation("c", "s", messages, 1)
    (example,) = tokenize_conversation(conversation, template, stops, **POLICIES).examples
    return template, messages, example, stops


def edges_of(labels: list[int]) -> Edges:
    """First and one-past-last token of every trained run."""
    on = [False, *(label != -100 for label in labels), False]
    changes = [index for index, (a, b) in enumerate(pairwise(on)) if a != b]
    return list(zip(changes[::2], changes[1::2], strict=True))


def off_by_one_at_the_start(edges: Edges) -> Edges:
    return [(edges[0][0] + 1, edges[0][1]), *edges[1:]]


def off_by_one_at_the_end(edges: Edges) -> Edges:
    return [*edges[:-1], (edges[-1][0], edges[-1][1] + 1)]


def header_trained(edges: Edges) -> Edges:
    return [*edges[:-1], (edges[-1][0] - 11, edges[-1][1])]  # <|start|>assistant\n


def stop_not_trained(edges: Edges) -> Edges:
    return [edges[0], (edges[1][0], edges[1][1] - 1), *edges[2:]]


def turn_missing(edges: Edges) -> Edges:
    return [edges[0], *edges[2:]]


def turn_swapped(edges: Edges) -> Edges:
    """The question before the second answer instead of it: user\\nhi<|end|>."""
    start = edges[0][1] + 1  # after the newline that follows the first stop
    return [edges[0], (start, start + 9), *edges[2:]]


BUGS = [
    off_by_one_at_the_start,
    off_by_one_at_the_end,
    header_trained,
    stop_not_trained,
    turn_missing,
    turn_swapped,
]


def by_turns(case: Case, example: Example) -> bool:
    """Whether the first derivation alone accepts the mask."""
    template, messages, _, stops = case
    turns = [k for k, m in enumerate(messages) if m["role"] == "assistant"]
    policies: dict[str, Any] = {"unstable": "error", "mismatch": "error"}
    (layout,) = bodies_module.layouts(template, messages, stops, turns=turns, **policies)
    encoded = template.encoding(layout.text)
    spans = [(body.start, body.end) for body in layout.bodies]
    return label(encoded, encoded.ids, spans) == (example.labels, ())


def by_marks(case: Case, example: Example) -> bool:
    """Whether the second derivation alone accepts the mask."""
    template, messages, _, stops = case
    turns = [k for k, m in enumerate(messages) if m["role"] == "assistant"]
    return prove(template, messages, example, turns=turns, stops=stops) == []


@pytest.mark.parametrize("accepts", [by_turns, by_marks])
def test_each_derivation_accepts_the_right_mask(case: Case, accepts: Callable[..., bool]) -> None:
    assert accepts(case, case[2])


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("accepts", [by_turns, by_marks])
def test_each_derivation_alone_catches_a_planted_bug(
    case: Case, accepts: Callable[..., bool], bug: Callable[[Edges], Edges]
) -> None:
    example = case[2]
    labels = [-100] * len(example.labels)
    for start, end in bug(edges_of(example.labels)):
        labels[start:end] = example.input_ids[start:end]
    assert labels != example.labels
    assert not accepts(case, dataclasses.replace(example, labels=labels))


MOVES = [(1, 0), (0, 1), (-11, 0), (0, -7), (-19, -9)]  # start, end, header, stop, another place


@pytest.mark.parametrize("move", MOVES)
def test_a_bug_inside_the_first_derivation_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, move: tuple[int, int]
) -> None:
    template, messages, _, stops = case
    right = bodies_module.Body
    monkeypatch.setattr(
        bodies_module, "Body", lambda turn, a, b: right(turn, a + move[0], b + move[1])
    )
    with pytest.raises(InputError):
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **POLICIES)


@pytest.mark.parametrize("move", MOVES)
def test_a_bug_inside_the_second_derivation_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, move: tuple[int, int]
) -> None:
    template, messages, _, stops = case
    right = proof_module.expect

    def wrong(*arguments: Any) -> Expected:
        expected = right(*arguments)
        assert isinstance(expected, Expected)
        spans = tuple((start + move[0], end + move[1]) for start, end in expected.spans)
        return Expected(expected.text, spans)

    monkeypatch.setattr(proof_module, "expect", wrong)
    with pytest.raises(InputError, match="proof"):
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **POLICIES)


Turns = list[int]


@pytest.mark.parametrize(
    "wrong",
    [lambda turns: turns[1:], lambda turns: turns[:-1], lambda turns: [turns[0], turns[-2]]],
)
def test_a_turn_that_the_first_derivation_forgets_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Turns], Turns]
) -> None:
    """The proof of an example knows its own turns only: the row says which there must be."""
    template, messages, _, stops = case
    right = examples_module.trained_turns
    monkeypatch.setattr(examples_module, "trained_turns", lambda *asked: wrong(right(*asked)))
    with pytest.raises(InputError, match="the row asks for"):
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **POLICIES)


def test_a_body_that_the_first_derivation_loses_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, messages, _, stops = case
    right = examples_module.layouts

    def wrong(*asked: Any, **policies: Any) -> list[Any]:
        return [dataclasses.replace(p, bodies=p.bodies[1:]) for p in right(*asked, **policies)]

    monkeypatch.setattr(examples_module, "layouts", wrong)
    with pytest.raises(InputError, match="the row asks for"):
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **POLICIES)


@pytest.mark.parametrize("mask", [{"train": False}, {"weight": 0}])
@pytest.mark.parametrize("loss_on", ["assistant", "last_assistant"])
def test_a_masked_answer_that_is_trained_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, mask: dict[str, Any], loss_on: str
) -> None:
    template, messages, _, stops = case
    messages = [*messages[:-1], {**messages[-1], **mask}]
    turns = [k for k, m in enumerate(messages) if m["role"] == "assistant"]
    turns = turns if loss_on == "assistant" else turns[-1:]
    monkeypatch.setattr(examples_module, "trained_turns", lambda *asked: turns)
    with pytest.raises(InputError, match="the row asks for"):
        policies = {**POLICIES, "loss_on": loss_on}
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **policies)


def test_a_prompt_that_the_first_derivation_cuts_short_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newline of the header would be trained."""
    template, messages, _, stops = case
    right = type(template).prompt
    monkeypatch.setattr(type(template), "prompt", lambda self, asked: right(self, asked)[:-1])
    with pytest.raises(InputError, match="proof"):
        tokenize_conversation(Conversation("c", "s", messages, 1), template, stops, **POLICIES)


def test_a_name_that_a_later_message_repeats(
    make_template: Callable[..., Any], tokenized: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    """The tool's turn names the call again, after the stop of the call (gpt-oss)."""
    text = (
        "{% set ns = namespace(name='') %}{% for m in messages %}"
        "{{ '<|' + m.role + '|>' }}{% if m.role == 'tool' %}{{ ns.name }}{% endif %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name + '()' }}"
        "{% set ns.name = c.function.name %}{% endfor %}{{ '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    call = {"function": {"name": "weather", "arguments": {}}}
    messages = [
        *talk("hi"),
        {"role": "assistant", "content": "look", "tool_calls": [call]},
        {"role": "tool", "content": "sun"},
        {"role": "assistant", "content": "yo"},
    ]
    template = make_template(text)
    (example,) = tokenized(template, messages).examples
    ids = [label for label in example.labels if label != -100]
    assert template.tokenizer.decode(ids) == "lookweather()<|end|>yo<|end|>"
