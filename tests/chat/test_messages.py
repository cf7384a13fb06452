"""Structure is checked before rendering: each broken kind gives its field path and rule."""

from typing import Any

import pytest

from hashtune.chat.messages import check_messages, normalise, parse_arguments, trained_turns
from hashtune.errors import InputError

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "yo"}


def calling(arguments: Any, content: str | None = None) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, ANSWER], []),
        ([], [("messages", "no-messages")]),
        ([USER], [("messages", "no-answer")]),
        ([USER, ANSWER, USER], [("messages[2]", "trailing")]),
        ([ANSWER], [("messages[0].role", "no-prompt")]),
        ([USER, ANSWER, ANSWER], [("messages[2].role", "consecutive-assistant")]),
        ([USER, {"role": "assistant", "content": None}], [("messages[1].content", "null-content")]),
        ([USER, {"role": "assistant"}], [("messages[1].content", "null-content")]),
        (
            [USER, {"role": "assistant", "content": " \n"}],
            [("messages[1].content", "blank-content")],
        ),
        (
            [USER, {"role": "assistant", "content": ["a", {"type": "text", "text": "b"}]}],
            [("messages[1].content[0]", "content-part")],
        ),
        (
            [
                {"role": "user", "content": [{"type": "audio", "text": "a"}, {"type": "text"}]},
                ANSWER,
            ],
            [
                ("messages[0].content[0]", "content-part"),
                ("messages[0].content[1]", "content-part"),
            ],
        ),
        ([USER, {"role": "assistant", "content": 7}], [("messages[1].content", "content-type")]),
        (
            [USER, {"role": "assistant", "content": [{"type": "text", "text": " "}]}],
            [("messages[1].content", "blank-content")],
        ),
        ([{"role": None, "content": "a"}, ANSWER], [("messages[0].role", "role")]),
        ([USER, calling({})], []),
        ([USER, calling("null")], []),
        (
            [USER, calling("[1]")],
            [("messages[1].tool_calls[0].function.arguments", "tool-arguments")],
        ),
        (
            [USER, calling("{bad")],
            [("messages[1].tool_calls[0].function.arguments", "tool-arguments")],
        ),
        (
            [USER, {"role": "assistant", "content": "a", "tool_calls": [{"function": {}}]}],
            [("messages[1].tool_calls[0].function.name", "tool-calls")],
        ),
        ([USER, {**ANSWER, "tool_calls": "x"}], [("messages[1].tool_calls", "tool-calls")]),
        ([USER, {**ANSWER, "train": "no"}], [("messages[1].train", "train")]),
        ([USER, {**ANSWER, "weight": 0.5}], [("messages[1].weight", "weight")]),
        (
            [USER, {**ANSWER, "train": True, "weight": 0}],
            [("messages[1].weight", "train-weight")],
        ),
        (
            [USER, {**ANSWER, "train": False, "weight": 1}],
            [("messages[1].weight", "train-weight")],
        ),
        ([USER, {**ANSWER, "train": False, "weight": 0}], []),
        (
            [USER, {**ANSWER, "reasoning_content": 3}],
            [("messages[1].reasoning_content", "content-type")],
        ),
    ],
)
def test_each_broken_structure_is_named(messages: list[Any], expected: list[Any]) -> None:
    assert [(field, rule) for field, rule, _ in check_messages(messages)] == expected


def test_all_findings_at_once_with_their_words() -> None:
    messages = [USER, {"role": "assistant", "content": None}, ANSWER, USER]
    assert check_messages(messages) == [
        ("messages[1].content", "null-content", "null and no tool_calls"),
        ("messages[2].role", "consecutive-assistant", "role 'assistant' follows 'assistant'"),
        ("messages[3]", "trailing", "nothing to learn after messages[2]"),
    ]


@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', {"city": "Oslo"}])
def test_arguments_as_text_and_object_become_one_form(arguments: Any) -> None:
    assert normalise([calling(arguments)]) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
            ],
        }
    ]


def test_arguments_null_and_empty_mean_none() -> None:
    assert [parse_arguments(value) for value in ("null", "", None, {})] == [{}, {}, {}, {}]


def test_a_function_inside_a_function_is_only_printed() -> None:
    function = {"name": "f", "arguments": "{}", "function": 3}
    (message,) = normalise([{"role": "assistant", "tool_calls": [{"function": function}]}])
    (call,) = message["tool_calls"]
    assert call == {"function": {"name": "f", "arguments": {}, "function": 3}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": NaN}', "NaN is no JSON value"),
        ('{"a": 1e999}', "number out of range"),
        ('{"a": 1, "a": 2}', "key 'a' given twice"),
        ('{"a": "\\ud83d"}', "half of a character"),
        ('{"a": ' + "[" * 5000, "nested deeper than 100 levels"),
    ],
)
def test_arguments_as_text_say_nothing_that_json_cannot(text: str, reason: str) -> None:
    """Python's json reads these, and the template would print another value or fail."""
    with pytest.raises(ValueError, match=reason):
        parse_arguments(text)


def test_normalise_refuses_bad_arguments_by_path() -> None:
    with pytest.raises(InputError, match=r"messages\[0\].tool_calls\[0\].function.arguments"):
        normalise([calling("{bad")])


def test_normalise_drops_own_fields_and_nulls_and_keeps_the_input() -> None:
    message = {**ANSWER, "train": False, "weight": 0, "name": None}
    assert normalise([message]) == [ANSWER]
    assert message["train"] is False


def test_trained_turns() -> None:
    talk = [USER, ANSWER, USER, {**ANSWER, "train": False}, USER, ANSWER, USER]
    assert trained_turns(talk, "assistant") == [1, 5]
    assert trained_turns(talk, "last_assistant") == [5]
    assert trained_turns(talk[:4], "last_assistant") == []
    assert trained_turns([USER, {**ANSWER, "weight": 0}, USER, ANSWER], "assistant") == [3]


def test_normalise_joins_text_parts_as_they_are() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two\n"}]
    (message,) = normalise([{"role": "user", "content": parts}])
    assert message == {"role": "user", "content": "one two\n"}
    assert normalise([{"role": "user", "content": []}]) == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ({"function": {"name": "f", "parameters": {"a": 1}}}, ".function.parameters"),
        ({"function": {"name": "f", "args": '{"a": 1}', "strict": None}}, ".function.args"),
        ({"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}, ".input"),
        ({"function": {"name": "f", "arguments": {}}, "name": "g"}, ".name"),
        ({"function": {"name": "f"}, "arguments": {"a": 1}}, ".arguments"),
        ({"function": {"name": " ", "arguments": {}}}, ".function.name"),
    ],
)
def test_a_call_whose_arguments_nobody_would_read_is_refused(call: Any, path: str) -> None:
    """Let pass, the call would be trained with {} for its arguments."""
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    found = [(field, rule) for field, rule, _ in check_messages(messages)]
    assert found == [(f"messages[1].tool_calls[0]{path}", "tool-calls")]


@pytest.mark.parametrize(
    "call",
    [
        {"name": "f", "id": "1", "index": 0, "type": "function"},
        {"function": {"name": "f", "parameters": None}, "name": None, "index": 0},
        {"function": {"name": "f", "arguments": None, "description": "more"}},
    ],
)
def test_a_call_without_arguments_is_none_of_these(call: Any) -> None:
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert check_messages(messages) == []


def test_two_reasonings_of_one_answer_are_refused() -> None:
    """A template prints one of them, and the other would be lost without a word."""
    both = {**ANSWER, "reasoning_content": "one", "thinking": "two"}
    assert check_messages([USER, both]) == [
        (
            "messages[1].thinking",
            "two-reasonings",
            "another text than 'reasoning_content' has: a template prints one of them",
        )
    ]
    assert check_messages([USER, {**both, "thinking": "one", "reasoning": None}]) == []
