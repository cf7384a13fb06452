"""What is compared of a row: its user texts, with its place."""

import numpy as np

from hashtune.data.items import Items
from hashtune.data.leakage import Item
from hashtune.records import Conversation


def test_items_hold_every_text_by_kind_and_follow_the_given_order(table_of):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "user", "content": "u2"},
    ]
    table = table_of(
        Conversation(f"{line:016x}", "s", messages[:end], line) for line, end in ((4, 4), (5, 3))
    )
    items = Items(table, np.array([1, 0, 1]), {"s": "d.jsonl"})
    others = [("system", "s"), ("assistant", "a"), ("assistant", "r")]
    assert list(items) == [
        Item("d.jsonl", 5, ["u1"], others, ["a", "r"]),
        Item("d.jsonl", 4, ["u1", "u2"], others, []),
        Item("d.jsonl", 5, ["u1"], others, ["a", "r"]),
    ]
    assert list(items[1:2]) == [Item("d.jsonl", 4, ["u1", "u2"], others, [])]


def test_the_reasoning_of_the_last_answer_is_its_reference_too(table_of):
    answer = {"role": "assistant", "content": "a", "reasoning_content": "r", "thinking": None}
    user = {"role": "user", "content": "u"}
    early = {"role": "assistant", "content": "b", "reasoning": "s"}
    table = table_of([Conversation("1" * 16, "s", [user, early, user, answer], 5)])
    [item] = Items(table, np.array([0]), {"s": "d.jsonl"})
    assert item.answers == ["a", "r"]


def test_tool_results_and_arguments_are_texts_too(table_of):
    """Arguments given as an object or as JSON text are the same texts, in one."""
    calls = [
        {"function": {"name": "f", "arguments": {"q": "what is", "l": ["it", 3]}}},
        {"name": "f", "arguments": '{"q": "what is"}'},
        {"name": "f", "arguments": "{broken"},
        {"name": "f", "arguments": None},
    ]
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "a"},
    ]
    table = table_of([Conversation("1" * 16, "s", messages, 5)])
    [item] = Items(table, np.array([0]), {"s": "d.jsonl"})
    assert item.others == [
        ("arguments", "what is it"),
        ("arguments", "what is"),
        ("arguments", "{broken"),
        ("tool", "t"),
        ("assistant", "a"),
    ]


def test_a_plain_text_is_compared_as_a_user_text_is(table_of):
    table = table_of([Conversation("1" * 16, "s", [{"role": "text", "content": "t"}], 5)])
    assert list(Items(table, np.array([0]), {"s": "d.jsonl"})) == [
        Item("d.jsonl", 5, ["t"], [], [])
    ]
