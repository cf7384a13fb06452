"""The names of ShareGPT and its function calls, with exact messages and planted faults."""

import pytest

from hashtune.data.layouts import to_messages
from hashtune.data.messages import Place

PLACE = Place("d", 1)


def read(*turns):
    rows = [dict(zip(("from", "value"), turn, strict=True)) for turn in turns]
    return to_messages({"conversations": rows}, "sharegpt", PLACE)


@pytest.mark.parametrize("name", ["gpt", "GPT", "Assistant", "chatgpt", "ChatGPT", "bing", "bard"])
def test_names_of_the_model(name):
    assert read(("System", "s"), ("Human", "u"), (name, "a")) == (
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a"},
        ],
        [],
    )


def test_a_function_call_becomes_a_tool_call_and_an_observation_its_result():
    value = '{"name": "weather", "arguments": {"city": "Oslo", "days": 1.50}}'
    messages, findings = read(
        ("human", "hot?"), ("function_call", value), ("observation", "3 C"), ("gpt", "no")
    )
    assert findings == []
    arguments = messages[1]["tool_calls"][0]["function"].pop("arguments")
    assert messages == [
        {"role": "user", "content": "hot?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "weather"}}],
        },
        {"role": "tool", "content": "3 C"},
        {"role": "assistant", "content": "no"},
    ]
    assert repr(arguments) == "{'city': 'Oslo', 'days': 1.50}"


def test_a_list_is_parallel_calls():
    value = '[{"name": "f", "arguments": "{}", "id": "x"}, {"name": "g"}]'
    messages, findings = read(("human", "u"), ("Function_Call", value))
    assert findings == []
    assert messages[1]["tool_calls"] == [
        {"type": "function", "id": "x", "function": {"name": "f", "arguments": "{}"}},
        {"type": "function", "function": {"name": "g", "arguments": None}},
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("f(1)", "is no JSON (column 1: expecting value)"),
        ('{"name": "f", "name": "g"}', "is no JSON (column 15: key 'name' given twice)"),
        ('"f"', "is no call: an object with a name"),
        ('{"arguments": {}}', "is no call: an object with a name"),
        ("[]", "holds no call"),
        ('{"name": "f", "arguments": [1]}', "the arguments of the call are no object"),
        ('{"name": "f", "parameters": {}}', "the call holds 'parameters' too"),
    ],
)
def test_a_broken_function_call_is_named(value, said):
    _, findings = read(("human", "u"), ("function_call", value), ("gpt", "a"))
    assert [(f.rule, f.field, f.message) for f in findings] == [
        ("function-call", "conversations[1].value", said)
    ]


def test_every_finding_of_a_row_is_told_at_once():
    """Planted: a broken call, or a turn of another layout, hid what the other turns broke."""
    turns = [
        {"from": "human", "value": 7},
        {"from": "function_call", "value": ""},
        {"role": "user", "content": "u"},
        {"from": "nobody", "value": "x"},
        {"from": "gpt", "value": "a", "weight": 2},
    ]
    _, findings = to_messages({"conversations": turns, "system": 1}, "sharegpt", PLACE)
    assert [(f.rule, f.field) for f in findings] == [
        ("wrong-type", "system"),
        ("mixed-schema", "conversations[2]"),
        ("mixed-schema", "conversations[2]"),
        ("function-call", "conversations[1].value"),
        ("wrong-type", "conversations[0].value"),
        ("unknown-role", "conversations[3].from"),
        ("wrong-type", "conversations[4].weight"),
    ]


def test_two_sources_of_calls_are_refused():
    turn = {"from": "function_call", "value": '{"name": "f"}', "tool_calls": [{"name": "g"}]}
    row = {"conversations": [{"from": "human", "value": "u"}, turn]}
    _, [finding] = to_messages(row, "sharegpt", PLACE)
    assert finding.message == "a call, and the turn has tool_calls too"


def test_a_value_of_another_type_and_an_unknown_name_keep_their_findings():
    _, [finding] = read(("human", "u"), ("function_call", 3))
    assert (finding.rule, finding.field) == ("wrong-type", "conversations[1].value")
    _, [finding] = read(("human", "u"), ("gpd", "a"))
    assert finding.message.startswith("unknown name 'gpd'; did you mean 'gpt'")
