"""Groups that held-out files tear apart are findings."""

from collections import Counter

import numpy as np
import pytest

from hashtune.data import groups
from hashtune.data.groups import groups_apart
from hashtune.records import Conversation

FILES = {"s": "data/s.jsonl", "eval": "data/eval.jsonl", "test": "data/test.jsonl"}


def row(source, line, group):
    return Conversation(f"{line:016x}", source, [], line, group)


@pytest.fixture
def apart(table_of):
    """Looks for torn groups in splits of conversations."""

    def run(splits):
        table = table_of(row for rows in splits.values() for row in rows)
        ends = np.cumsum([len(rows) for rows in splits.values()])
        numbers = np.split(np.arange(len(table)), ends[:-1])
        return groups_apart(table, dict(zip(splits, numbers, strict=True)), FILES)

    return run


def test_a_group_in_two_splits_is_found_with_both_lines(apart):
    splits = {
        "train": [row("s", 1, None), row("s", 2, "ann"), row("s", 3, "ann"), row("s", 4, "bob")],
        "eval": [row("eval", 1, None), row("eval", 2, "cid")],
        "test": [row("test", 1, "ann"), row("test", 2, "dan"), row("test", 3, "cid")],
    }
    counts, findings, more = apart(splits)
    assert more == Counter()
    assert counts == {"train_eval": 0, "train_test": 1, "eval_test": 1}
    assert [str(finding).splitlines()[0] for finding in findings] == [
        "cleaning.leakage_groups: 2 rows share a group with a row of another split [group-leak]",
        "data/test.jsonl:1: group: test row of group 'ann', which is in train too: data/s.jsonl:2"
        " [group-leak]",
        "data/test.jsonl:3: group: test row of group 'cid', which is in eval too: "
        "data/eval.jsonl:2 [group-leak]",
    ]


def test_a_group_is_known_whatever_blanks_and_unicode_form_it_has(apart):
    splits = {
        "train": [row("s", 1, "caf\u00e9"), row("s", 2, "Ann")],
        "eval": [row("eval", 1, " cafe\u0301 "), row("eval", 2, "ann")],
        "test": [],
    }
    assert apart(splits)[0] == {"train_eval": 1, "train_test": 0, "eval_test": 0}


def test_findings_beyond_the_first_are_counted(apart, monkeypatch):
    monkeypatch.setattr(groups, "KEPT", 2)
    splits = {
        "train": [row("s", 1, "ann")],
        "eval": [row("eval", 1, "ann")],
        "test": [row("test", line, "ann") for line in (1, 2, 3)],
    }
    counts, findings, more = apart(splits)
    assert counts == {"train_eval": 1, "train_test": 3, "eval_test": 3}
    assert findings[0].message == "7 rows share a group with a row of another split"
    assert [(finding.file, finding.line) for finding in findings[1:]] == [
        ("data/eval.jsonl", 1),
        ("data/test.jsonl", 1),
    ]
    assert more == {"group-leak": 5}


def test_rows_without_a_group_share_none(apart):
    splits = {name: [row(name, 1, None)] for name in ("train", "eval", "test")}
    none = {"train_eval": 0, "train_test": 0, "eval_test": 0}
    assert apart(splits) == (none, [], Counter())
