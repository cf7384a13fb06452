"""Rows to conversations: the two schemas, every broken rule with its line and field."""

import pytest

from hashtune.data.messages import is_blank
from hashtune.data.schemas import as_row, content_id, parse_rows
from hashtune.records import Conversation

USER = {"role": "user", "content": "u"}
ANSWER = {"role": "assistant", "content": "a"}


def parse(*rows, schema="messages"):
    return parse_rows(enumerate(rows, start=1), schema=schema, source="s", shown="d.jsonl")


def told(parsed) -> list[str]:
    return [str(finding) for row in parsed.bad for finding in row.findings]


def fault(*messages) -> list[str]:
    return [line.removeprefix("d.jsonl:1: ") for line in told(parse({"messages": list(messages)}))]


def test_messages_become_a_conversation_as_written():
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {}}]}
    tool = {"role": "tool", "content": "", "tool_call_id": "1"}
    messages = [{"role": "system", "content": "s"}, USER, call, tool, tool, ANSWER]
    parsed = parse({"id": 7, "messages": messages, "group": 12, "meta": None, "src": {}})
    assert parsed.bad == []
    [row] = parsed.conversations
    assert row == Conversation(row.id, "s", messages, 1, "12")
    assert parsed.extra == {"meta": 1, "src": 1}


def test_id_is_the_hash_of_the_canonical_messages():
    # printf '[{"content":"u","role":"user"},{"content":"a","role":"assistant"}]\n' | sha256sum
    [row] = parse({"messages": [USER, ANSWER]}).conversations
    assert row.id == "9a896d0c8eeb97ec"
    assert content_id([USER, ANSWER]) == row.id
    text = '[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]'
    assert as_row(row) == {"id": row.id, "source": "s", "line": 1, "group": None, "messages": text}


def test_tool_arguments_keep_the_order_of_the_file():
    call = {"name": "pay", "arguments": {"to": "Ann", "amount": 3}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    [row] = parse({"messages": [USER, message]}).conversations
    assert '"arguments":{"to":"Ann","amount":3}' in str(as_row(row)["messages"])


def test_instruction_rows_become_messages():
    rows = [
        {"instruction": "do", "output": "done"},
        {"instruction": "do", "input": "x", "output": "done", "system": "be", "history": []},
        {"instruction": "do", "input": "", "output": "2024-01-05", "system": None},
    ]
    parsed = parse(*rows, schema="instruction")
    assert parsed.bad == []
    assert [row.messages for row in parsed.conversations] == [
        [{"role": "user", "content": "do"}, {"role": "assistant", "content": "done"}],
        [
            {"role": "system", "content": "be"},
            {"role": "user", "content": "do\n\nx"},
            {"role": "assistant", "content": "done"},
        ],
        [{"role": "user", "content": "do"}, {"role": "assistant", "content": "2024-01-05"}],
    ]
    assert parsed.extra == {"history": 1}


def test_null_missing_blank_and_wrong_type_are_told_apart():
    parsed = parse(
        {"instruction": "i", "output": "good"},
        {"instruction": "i", "output": None},
        {"instruction": "i"},
        {"instruction": "i", "output": " \u200b\n"},
        {"instruction": "i", "output": 7, "input": ["x"]},
        schema="instruction",
    )
    assert [row.line for row in parsed.conversations] == [1]
    assert told(parsed) == [
        "d.jsonl:2: output: null, expected string [null]",
        "d.jsonl:3: output: missing [missing]",
        "d.jsonl:4: output: blank [blank]",
        "d.jsonl:5: output: expected string, got number [wrong-type]",
        "d.jsonl:5: input: expected string, got array [wrong-type]",
    ]


def test_mixed_schemas_name_both():
    both = {"messages": None, "instruction": "i", "output": "o"}  # as datasets joins them
    parsed = parse({"messages": [USER, ANSWER]}, {"instruction": "i", "output": "o"}, both)
    assert told(parsed) == [
        "d.jsonl:2: schema instruction, file is declared as messages [mixed-schema]"
        "\n    fix: if the file is of this kind, declare schema: instruction (and "
        "fields:) in conf/data",
        "d.jsonl:3: schema instruction, file is declared as messages [mixed-schema]"
        "\n    fix: if the file is of this kind, declare schema: instruction (and "
        "fields:) in conf/data",
    ]
    parsed = parse({"messages": [USER, ANSWER]}, schema="instruction")
    assert told(parsed) == [
        "d.jsonl:1: schema messages, file is declared as instruction [mixed-schema]"
        "\n    fix: if the file is of this kind, declare schema: messages (and "
        "fields:) in conf/data"
    ]
    [line] = told(parse({"conversations": []}))
    assert "schema sharegpt, file is declared as messages" in line


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, "messages: missing [missing]"),
        ({"messages": None}, "messages: expected array, got null [null]"),
        ({"messages": "hi"}, "messages: expected array, got string [wrong-type]"),
        ({"messages": []}, "messages: no messages [empty]"),
        ({"messages": [USER, 3]}, "messages[1]: expected object, got number [wrong-type]"),
        (
            {"messages": [USER, ANSWER], "group": 1.5},
            "group: expected string, got number [wrong-type]",
        ),
        ({"messages": [USER, ANSWER], "group": " "}, "group: blank [blank]"),
    ],
)
def test_row_faults(row, expected):
    assert told(parse(row)) == [f"d.jsonl:1: {expected}"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"role": None}, "messages[1].role: null, expected string [null]"),
        (
            {"role": "gpt"},
            "messages[1].role: unknown role 'gpt'; did you mean 'assistant'? [unknown-role]",
        ),
        (
            {"role": "asistant"},
            "messages[1].role: unknown role 'asistant'; did you mean 'assistant'? [unknown-role]",
        ),
        ({"content": None}, "messages[1].content: null and no tool_calls [null]"),
        ({"content": ""}, "messages[1].content: blank [blank]"),
        (
            {"content": [{"type": "text"}]},
            "messages[1].content[0]: a text part without text [content-part]\n"
            "    fix: give one text, or parts of type text that hold nothing else",
        ),
        ({"content": True}, "messages[1].content: expected string, got boolean [wrong-type]"),
        ({"train": 1}, "messages[1].train: expected true or false, got number [wrong-type]"),
        ({"weight": 0.5}, "messages[1].weight: expected 0 or 1, got 0.5 [wrong-type]"),
        ({"tool_calls": {}}, "messages[1].tool_calls: expected array, got object [wrong-type]"),
        (
            {"tool_calls": ["f"]},
            "messages[1].tool_calls[0]: expected object, got string [wrong-type]",
        ),
    ],
)
def test_message_faults(change, expected):
    assert fault(USER, {**ANSWER, **change}) == [expected]


def test_sharegpt_fields_get_a_hint():
    first, second = fault({"from": "human", "value": "u"})
    assert first == "messages[0].role: missing [missing]"
    assert 'rename "from" to "role" and "value" to "content"' in second


def test_order_faults():
    assert fault(USER, USER, ANSWER) == []  # for the template to take or refuse
    assert fault(USER, ANSWER, ANSWER) == [
        "messages[2].role: two assistant messages in a row [role-order]"
    ]
    assert fault(USER) == ["messages: no assistant message, nothing to train on [no-assistant]"]
    assert fault(USER, ANSWER, USER) == [
        "messages[2].role: the last message is from user, expected assistant [last-not-assistant]"
    ]


def test_masked_turns_are_accepted():
    parsed = parse({"messages": [USER, {**ANSWER, "train": False}, USER, {**ANSWER, "weight": 1}]})
    assert parsed.bad == []


@pytest.mark.parametrize(
    ("text", "blank"), [("", True), (" \u2028\ufeff\t", True), ("\u200b.", False)]
)
def test_blank(text, blank):
    assert is_blank(text) is blank


@pytest.mark.parametrize(
    "text",
    ["\u2800", "\u3164\uffa0", "\u115f\u1160", "\u034f", "\ufe0f", "\U000e0101 \u17b4", "\u180b"],
)
def test_a_text_of_letters_that_nobody_sees_is_blank(text):
    """Fillers, joiners, selectors, the empty cell of Braille: their categories are those of letters
    and marks, and a model would be trained to answer with nothing."""
    assert fault(USER, {"role": "assistant", "content": text}) == [
        "messages[1].content: blank [blank]"
    ]
    assert not is_blank(f"{text}a")


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("Train", False, "train"),
        ("WEIGHT", 0, "weight"),
        ("toolCalls", [], "tool_calls"),
        ("tool-call-id", "x", "tool_call_id"),
        ("reasoningContent", "hm", "reasoning_content"),
    ],
)
def test_a_field_of_a_message_in_another_spelling_is_refused(name, value, right):
    """Let pass, the masked answer would be trained, the call and the reasoning be lost."""
    said = f"messages[1].{name}: not read; did you mean {right!r}? [unknown-field]"
    assert fault(USER, {**ANSWER, name: value}) == [said]


def test_a_field_of_a_row_in_another_spelling_is_refused():
    row = {"instruction": "u", "Input": "x", "output": "a", "Id": 3, "inputs": 1}
    assert told(parse(row, schema="instruction")) == [
        "d.jsonl:1: Input: not read; did you mean 'input'? [unknown-field]"
    ]
    row = {"instruction": "u", "output": "a", "Group": "x", "kunde": "y"}
    mapped = parse_rows(
        [(1, row)], schema="instruction", source="s", shown="d", fields={"group": "kunde"}
    )
    assert (told(mapped), mapped.extra) == ([], {"Group": 1})


def test_the_old_layout_of_a_call_is_refused():
    """No template reads it: beside a content the call would be lost without a word."""
    old = {"function_call": {"name": "f", "arguments": "{}"}}
    said = "messages[1].function_call: the old layout of a call, which no template prints"
    for content in ("I call.", "", None):
        lines = fault(USER, {"role": "assistant", "content": content, **old})
        assert [line.split("\n")[0] for line in lines] == [f"{said} [function-call]"]
    assert fault(USER, {**ANSWER, "function_call": None}) == []


def test_fields_of_messages_that_only_a_template_could_read_are_counted():
    messages = [{**USER, "name": "Ann"}, {**ANSWER, "refusal": None, "loss": False, "train": True}]
    parsed = parse({"messages": messages, "meta": 1}, {"messages": messages})
    assert parsed.bad == []
    assert parsed.extra == {"meta": 1, "messages[].refusal": 2, "messages[].loss": 2}


@pytest.mark.parametrize("mask", [{"train": False}, {"weight": 0}, {"weight": 0.0}])
def test_a_mask_of_a_whole_row_is_refused(mask):
    """Only counted, the row would be trained that says it should not be."""
    [name] = mask
    said = f"d.jsonl:1: {name}: is read in messages only, not of a row [unknown-field]"
    lines = told(parse({"instruction": "u", "output": "a", **mask}, schema="instruction"))
    assert [line.split("\n")[0] for line in lines] == [said]
    lines = told(parse({"messages": [USER, ANSWER], **mask}))
    assert [line.split("\n")[0] for line in lines] == [said]
    other = parse({"messages": [USER, ANSWER], "train": True, "weight": 2.5})
    assert (other.bad, other.extra) == ([], {"train": 1, "weight": 1})
