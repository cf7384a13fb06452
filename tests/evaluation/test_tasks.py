"""Test items, the base's instruction, rows and summary of task.jsonl."""

import json

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.generate import Answer
from hashtune.evaluation.tasks import base_prompt, prompt_hash, task_items, task_rows, task_summary
from hashtune.spec.schema import Task

USER = {"role": "user", "content": "q"}
SYSTEM = {"role": "system", "content": "s"}


def row(identifier, *messages):
    return {"id": identifier, "messages": json.dumps(messages)}


def said(text):
    return {"role": "assistant", "content": text}


def test_the_last_assistant_turn_is_the_reference():
    messages = [SYSTEM, USER, said("one"), USER, said("two")]
    (item,) = task_items([row("a", *messages)], file="t")
    assert (item.id, item.prompt, item.reference) == ("a", messages[:4], "two")
    (item,) = task_items([row("a", *messages, USER)], file="t")
    assert (item.prompt, item.reference) == (messages[:4], "two")


def test_conversations_without_a_reference_are_all_named():
    rows = [
        row("a", USER),
        row("b", said("x")),
        row("c", USER, said("y")),
        row("d", USER, said(None)),
    ]
    rows.append({"id": "e", "messages": "[]"})
    with pytest.raises(InputError) as caught:
        task_items(rows, file="t")
    assert [(f.file, f.line) for f in caught.value.findings] == [
        ("t", 1),
        ("t", 2),
        ("t", 4),
        ("t", 5),
    ]
    with pytest.raises(InputError, match="no test items"):
        task_items([], file="t")


def test_the_instruction_replaces_or_becomes_the_system_message():
    told = {"role": "system", "content": "Do it."}
    assert base_prompt([SYSTEM, USER], "Do it.") == [told, USER]
    assert base_prompt([USER], "Do it.") == [told, USER]
    assert base_prompt([SYSTEM, USER], None) == [SYSTEM, USER]


def test_rows_and_summary():
    task = Task(
        metric="json_fields",
        user_metric=None,
        fields=["x"],
        json_schema=None,
        base_instruction=None,
    )
    references = ['{"x": 1}', '{"x": 1}', '{"x": 2}']
    items = task_items([row(r, USER, said(r)) for r in references], file="t")
    answers = [Answer('{"x": 1}', 5, True), Answer("no", 9, False), Answer('{"x": 2}', 5, True)]
    rows = task_rows(task, items, [[SYSTEM, USER]] * 3, answers)
    assert rows[1] == {
        "id": '{"x": 1}',
        "prompt": prompt_hash([SYSTEM, USER]),
        "answer": "no",
        "finished": False,
        "tokens": 9,
        "scores": {"x": 0.0},
        "majority": {"x": 1.0},
        "reference": '{"x": 1}',
    }
    assert task_summary(task, rows) == {
        "items": 3,
        "finished_share": 0.666667,
        "tokens_mean": 6.333333,
        "scores": {"x": 0.666667},
        "majority": {"x": 0.666667},
        "valid_json_share": 0.666667,
        "valid_schema_share": 0.666667,
        # 1: TP 1, FN 1: 2/3; 2: TP 1: 1; "no" is neither
        "labels": {"x": {"labels": 2, "macro_f1": 0.833333, "outside_share": 0.333333}},
    }


def test_the_prompt_hash_sees_every_message_and_no_key_order():
    assert prompt_hash([USER]) == prompt_hash([{"content": "q", "role": "user"}])
    assert prompt_hash([USER]) != prompt_hash([SYSTEM, USER])
    assert len(prompt_hash([USER])) == 16
