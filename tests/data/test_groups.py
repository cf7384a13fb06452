"""Groups that held-out files tear apart are findings."""

from hashtune.data.groups import groups_apart
from hashtune.records import Conversation

FILES = {"s": "data/s.jsonl", "eval": "data/eval.jsonl", "test": "data/test.jsonl"}


def row(source, line, group):
    return Conversation(f"{source}{line}", source, [], line, group)


def test_a_group_in_two_splits_is_found_with_both_lines():
    splits = {
        "train": [row("s", 1, None), row("s", 2, "ann"), row("s", 3, "ann"), row("s", 4, "bob")],
        "eval": [row("eval", 1, None), row("eval", 2, "cid")],
        "test": [row("test", 1, "ann"), row("test", 2, "dan"), row("test", 3, "cid")],
    }
    counts, findings = groups_apart(splits, FILES)
    assert counts == {"train_eval": 0, "train_test": 1, "eval_test": 1}
    assert [str(finding).splitlines()[0] for finding in findings] == [
        "cleaning.leakage_groups: 2 rows share a group with a row of another split [group-leak]",
        "data/test.jsonl:1: group: test row of group 'ann', which is in train too: data/s.jsonl:2"
        " [group-leak]",
        "data/test.jsonl:3: group: test row of group 'cid', which is in eval too: "
        "data/eval.jsonl:2 [group-leak]",
    ]


def test_rows_without_a_group_share_none():
    splits = {name: [row(name, 1, None)] for name in ("train", "eval", "test")}
    assert groups_apart(splits, FILES) == ({"train_eval": 0, "train_test": 0, "eval_test": 0}, [])
