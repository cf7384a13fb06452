"""What is compared of a row: its user texts, with its place."""

import numpy as np

from hashtune.data.items import Items
from hashtune.data.leakage import Item
from hashtune.records import Conversation


def test_items_hold_user_texts_only_and_follow_the_given_order(table_of):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "u2"},
    ]
    table = table_of(
        Conversation(f"{line:016x}", "s", messages[:end], line) for line, end in ((4, 4), (5, 3))
    )
    items = Items(table, np.array([1, 0, 1]), {"s": "d.jsonl"})
    assert list(items) == [
        Item("d.jsonl", 5, ["u1"]),
        Item("d.jsonl", 4, ["u1", "u2"]),
        Item("d.jsonl", 5, ["u1"]),
    ]
    assert list(items[1:2]) == [Item("d.jsonl", 4, ["u1", "u2"])]


def test_a_plain_text_is_compared_as_a_user_text_is(table_of):
    table = table_of([Conversation("1" * 16, "s", [{"role": "text", "content": "t"}], 5)])
    assert list(Items(table, np.array([0]), {"s": "d.jsonl"})) == [Item("d.jsonl", 5, ["t"])]
