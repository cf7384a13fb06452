"""ShareGPT, prompt/completion and field mappings: the right messages, or findings in the file's
own words."""

import pytest

from hashtune.data.layouts import to_messages
from hashtune.data.lines import ReadRow
from hashtune.data.messages import Place
from hashtune.data.schemas import parse_rows

PLACE = Place("d", 1)
USER = {"role": "user", "content": "u"}
ANSWER = {"role": "assistant", "content": "a"}


def parse(*rows, schema, fields=None):
    numbered = enumerate(rows, start=1)
    return parse_rows(numbered, schema=schema, source="s", shown="d", fields=fields or {})


def messages(row, **how):
    parsed = parse(row, **how)
    assert parsed.bad == []
    return parsed.conversations[0].messages


def told(*rows, **how) -> list[str]:
    return [str(f).split("\n")[0] for row in parse(*rows, **how).bad for f in row.findings]


def share(*turns, **row):
    return {"conversations": [{"from": name, "value": text} for name, text in turns], **row}


def test_sharegpt_names_become_roles():
    row = share(("system", "s"), ("human", "u"), ("gpt", "a"), ("tool", ""), ("gpt", "b"))
    assert messages(row, schema="sharegpt") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "b"},
    ]
    row = share(("user", "u"), ("assistant", "2024-01-05"), system="be brief", id=1, lang="en")
    parsed = parse(row, schema="sharegpt")
    assert parsed.conversations[0].messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "2024-01-05"},
    ]
    assert parsed.extra == {"lang": 1}


def test_other_sharegpt_names_are_refused_with_the_nearest():
    row = share(("humen", "u"), ("gptt", "a"))
    assert told(row, schema="sharegpt") == [
        "d:1: conversations[0].from: unknown name 'humen'; did you mean 'human'? [unknown-role]",
        "d:1: conversations[1].from: unknown name 'gptt'; did you mean 'gpt'? [unknown-role]",
    ]


def test_sharegpt_findings_use_the_names_of_the_row():
    broken = {"conversations": [{"from": "human"}, {"value": "a"}, {"from": "gpt", "value": None}]}
    assert told(broken, schema="sharegpt") == [
        "d:1: conversations[0].value: missing [missing]",
        "d:1: conversations[1].from: missing [missing]",
        "d:1: conversations[2].value: null and no tool_calls [null]",
    ]
    rows = [
        share(("human", "u")),
        share(("human", "u"), ("gpt", "a"), ("gpt", "b")),
        {"conversations": []},
        {"conversations": "x"},
        {"id": 1},
        share(("system", "s"), ("human", "u"), ("gpt", "a"), system="t"),
        share(("human", "u"), ("gpt", "a"), system=7),
    ]
    assert told(*rows, schema="sharegpt") == [
        "d:1: conversations: no assistant message, nothing to train on [no-assistant]",
        "d:2: conversations[2].from: two assistant messages in a row [role-order]",
        "d:3: conversations: no messages [empty]",
        "d:4: conversations: expected array, got string [wrong-type]",
        "d:5: conversations: missing [missing]",
        "d:6: system: conversations[0] is a system message too [role-order]",
        "d:7: system: expected string, got number [wrong-type]",
    ]


def test_messages_in_a_sharegpt_file_are_not_taken_silently():
    assert told({"conversations": [USER, ANSWER]}, schema="sharegpt") == [
        "d:1: conversations[0]: has 'role' [mixed-schema]",
        "d:1: conversations[0]: has 'content' [mixed-schema]",
        "d:1: conversations[1]: has 'role' [mixed-schema]",
        "d:1: conversations[1]: has 'content' [mixed-schema]",
    ]
    mapped = {"schema": "messages", "fields": {"messages": "conversations"}}
    assert messages({"conversations": [USER, ANSWER]}, **mapped) == [USER, ANSWER]


def test_prompt_and_completion_may_be_texts_or_messages():
    how = {"schema": "prompt_completion"}
    assert messages({"prompt": "u", "completion": "a"}, **how) == [USER, ANSWER]
    assert messages({"prompt": "u", "completion": [ANSWER], "system": "s"}, **how) == [
        {"role": "system", "content": "s"},
        USER,
        ANSWER,
    ]
    system = {"role": "system", "content": "s"}
    assert messages({"prompt": [system, USER], "completion": "a"}, **how) == [system, USER, ANSWER]


def test_answers_in_a_prompt_are_context_unless_the_row_says_otherwise():
    weighed = {**ANSWER, "weight": 1}
    row = {"prompt": [USER, ANSWER, USER, weighed, USER], "completion": [ANSWER]}
    assert messages(row, schema="prompt_completion") == [
        USER,
        {**ANSWER, "train": False},
        USER,
        weighed,
        USER,
        ANSWER,
    ]


def test_prompt_completion_findings_use_the_names_of_the_row():
    rows = [
        {"prompt": None, "completion": " "},
        {"prompt": "u"},
        {"prompt": [], "completion": {"role": "assistant"}},
        {"prompt": [{"role": "usr", "content": "u"}], "completion": ["a"]},
        {"prompt": "u", "completion": [ANSWER, ANSWER]},
        {"prompt": [USER], "completion": [ANSWER, USER]},
        {"prompt": "u", "completion": [{**ANSWER, "content": None}]},
        {"prompt": [{"role": "system", "content": "s"}, USER], "completion": "a", "system": "t"},
    ]
    assert told(*rows, schema="prompt_completion") == [
        "d:1: prompt: null, expected string [null]",
        "d:1: completion: blank [blank]",
        "d:2: completion: missing [missing]",
        "d:3: prompt: no messages [empty]",
        "d:3: completion: expected string or array, got object [wrong-type]",
        "d:4: prompt[0].role: unknown role 'usr'; did you mean 'user'? [unknown-role]",
        "d:4: completion[0]: expected object, got string [wrong-type]",
        "d:5: completion[1].role: two assistant messages in a row [role-order]",
        "d:6: completion[1].role: the last message is from user, expected assistant "
        "[last-not-assistant]",
        "d:7: completion[0].content: null and no tool_calls [null]",
        "d:8: system: prompt[0] is a system message too [role-order]",
    ]


def test_masks_tool_calls_and_reasoning_survive_every_schema():
    call = {"function": {"name": "f", "arguments": '{"x": "00501"}'}}
    asked = {"content": None, "tool_calls": [call], "train": False}
    result = {"content": "", "tool_call_id": "1"}
    told_why = {"content": "a", "reasoning_content": "since", "weight": 1}
    expected = [
        USER,
        {"role": "assistant", **asked},
        {"role": "tool", **result},
        {"role": "assistant", **told_why},
    ]
    assert messages({"messages": expected}, schema="messages") == expected
    row = {"prompt": "u", "completion": expected[1:]}
    assert messages(row, schema="prompt_completion") == expected

    def turn(name, message):
        return {"from": name, **{"value" if k == "content" else k: v for k, v in message.items()}}

    turns = [turn("human", {"content": "u"}), turn("gpt", asked), turn("tool", result)]
    row = {"conversations": [*turns, turn("gpt", told_why)]}
    assert messages(row, schema="sharegpt") == expected


@pytest.mark.parametrize("value", [True, 1, 1.5, [], {}, ["hm"], {"a": 1}])
@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning", "name"])
def test_a_text_that_a_template_may_print_is_a_text(key, value):
    """Planted: Jinja printed {'a': 1} for such a name."""
    user, answer = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
    row = {"messages": [{**user, key: value}, {**answer, key: value}]}
    _, findings = to_messages(row, "messages", PLACE)
    assert [(f.rule, f.field) for f in findings] == [
        ("wrong-type", f"messages[0].{key}"),
        ("wrong-type", f"messages[1].{key}"),
    ]
    for sound in (None, "", "x"):
        row = {"messages": [user, {**answer, key: sound}]}
        assert to_messages(row, "messages", PLACE)[1] == []


def test_beside_calls_no_content_and_null_are_one():
    """OpenAI's own format leaves content out there; without calls it is still missing."""
    user, done = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    tool = {"role": "tool", "content": "t"}
    absent = messages({"messages": [user, call, tool, done]}, schema="messages")
    null = {**call, "content": None}
    assert absent == messages({"messages": [user, null, tool, done]}, schema="messages")
    assert absent[1] == null
    row = {"messages": [user, {"role": "assistant", "tool_calls": []}]}
    assert told(row, schema="messages") == ["d:1: messages[1].content: missing [missing]"]


def test_the_id_of_a_call_is_a_text_or_a_number():
    def findings(value):
        tool = {"role": "tool", "content": "t", "tool_call_id": value}
        call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}
        talk = [{"role": "user", "content": "u"}, call, tool, {"role": "assistant", "content": "a"}]
        return [f.field for f in to_messages({"messages": talk}, "messages", PLACE)[1]]

    assert findings("call_1") == findings(1) == findings(None) == []
    assert findings([1]) == findings(True) == ["messages[2].tool_call_id"]


def test_a_mapping_reads_other_names_and_findings_use_them():
    how = {"schema": "instruction", "fields": {"instruction": "text", "output": "category"}}
    row = {"text": "u", "category": "a", "output": "not this", "lang": "en", "system": "s"}
    parsed = parse(row, **how)
    assert parsed.conversations[0].messages == [{"role": "system", "content": "s"}, USER, ANSWER]
    assert parsed.extra == {"output": 1, "lang": 1}
    assert told({"text": "u", "output": "x"}, {"text": None, "category": 7}, **how) == [
        "d:1: category: missing [missing]",
        "d:2: text: null, expected string [null]",
        "d:2: category: expected string, got number [wrong-type]",
    ]
    nested = {"schema": "messages", "fields": {"messages": "dialog"}}
    assert told({"dialog": [USER, {"role": "assistant"}]}, **nested) == [
        "d:1: dialog[1].content: missing [missing]"
    ]


def test_an_element_of_an_array_is_named_by_its_place():
    rows = [ReadRow(3, {"messages": [USER]}, 7), ReadRow(4, {"prompt": "u"}, 8)]
    parsed = parse_rows(rows, schema="messages", source="s", shown="d")
    lines = [str(finding) for row in parsed.bad for finding in row.findings]
    assert [line.split("\n")[0] for line in lines] == [
        "d:3: [7].messages: no assistant message, nothing to train on [no-assistant]",
        "d:4: [8]: schema prompt_completion, file is declared as messages [mixed-schema]",
    ]


HI = [{"type": "text", "text": "u"}]
TWO = [{"type": "text", "text": "one"}, {"type": "text", "text": " two", "image": None}]
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def test_text_parts_become_one_text_in_every_schema_that_has_messages():
    talk = [{"role": "user", "content": HI}, {"role": "assistant", "content": TWO}]
    plain = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "one two"}]
    assert messages({"messages": talk}, schema="messages") == plain
    turns = [{"from": "human", "value": HI}, {"from": "gpt", "value": TWO}]
    assert messages({"conversations": turns}, schema="sharegpt") == plain
    row = {"prompt": talk[:1], "completion": talk[1:]}
    assert messages(row, schema="prompt_completion") == plain


def test_a_row_of_parts_is_the_row_of_their_text():
    rows = [{"messages": [{"role": "user", "content": HI}, ANSWER]}, {"messages": [USER, ANSWER]}]
    ids = {c.id for c in parse(*rows, schema="messages").conversations}
    assert len(ids) == 1


def test_parts_that_are_no_text_are_named_one_by_one():
    parts = [
        HI[0],
        IMAGE,
        {"type": "text", "text": None},
        "b",
        {"type": "text", "text": "c", "x": 1},
    ]
    turns = [{"from": "human", "value": parts}, {"from": "gpt", "value": []}]
    found = told({"conversations": turns}, schema="sharegpt")
    parted = "d:1: conversations[0].value"
    assert [line.partition("\n")[0] for line in found] == [
        f"{parted}[1]: a part of type 'image_url', expected 'text' [content-part]",
        f"{parted}[2]: a text part without text [content-part]",
        f"{parted}[3]: expected a part of type text, got str [content-part]",
        f"{parted}[4]: a text part that also holds 'x' [content-part]",
        "d:1: conversations[1].value: blank [blank]",
    ]


def test_plain_text_is_a_role_that_no_conversation_may_have():
    assert messages({"text": " t\n", "group": "g"}, schema="text") == [
        {"role": "text", "content": " t\n"}
    ]
    forged = {"messages": [{"role": "text", "content": "t"}]}
    assert told(forged, schema="messages") == [
        "d:1: messages[0].role: unknown role 'text'; known: assistant, developer, system, tool, "
        "user [unknown-role]",
    ]
    assert told({"text": "t"}, schema="messages") == [
        "d:1: schema text, file is declared as messages [mixed-schema]"
    ]
