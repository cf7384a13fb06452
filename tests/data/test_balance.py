"""A class has at most so many rows; replay and rows without a class are not counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.balance import balance, class_of
from hashtune.records import Conversation
from hashtune.spec.schema import Balance

BY_INTENT = Balance(by="answer.intent", max_rows=2)


def row(line, answer, *, source="s", group=None):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
    return Conversation(f"{line:016x}", source, messages, line, group)


@pytest.fixture(scope="module")
def balanced(table_of):
    """Balances conversations: those that stay, the ledger, classes, findings."""

    def run(rows, settings):
        table = table_of(rows)
        result = balance(table, np.arange(len(rows)), settings)
        kept = [rows[number] for number in result.rows]
        return kept, list(table.ledger()), result.classes, result.findings

    return run


def test_rows_beyond_the_cap_go_to_the_ledger(balanced):
    rows = [row(line, '{"intent": "bug"}') for line in range(5)]
    rows += [row(9, '{"intent": "login"}'), row(10, "no JSON"), row(11, '{"x": 1}'), row(12, "[1]")]
    rows += [row(20 + i, '{"intent": "bug"}', source="replay") for i in range(4)]
    kept, ledger, classes, findings = balanced(rows, BY_INTENT)
    assert [c for c in rows if c in kept] == kept  # order kept
    assert len(kept) == len(rows) - 3
    assert {(d.reason, d.detail, d.source) for d in ledger} == {
        ("balance", "answer.intent=bug", "s")
    }
    assert classes == {"bug": [5, 2], "login": [1, 1]}
    assert findings == []


def test_classes_of_any_json_value_and_of_groups():
    assert class_of(row(1, '{"a": {"c": 1, "b": null}}'), "answer.a") == '{"b":null,"c":1}'
    assert class_of(row(1, '{"a": true}'), "answer.a") == "true"
    assert class_of(row(1, '{"a": NaN}'), "answer.a") == "nan"
    assert class_of(row(1, "x", group="g"), "group") == "g"
    assert class_of(row(1, "x", group=" caf\u00e9 "), "group") == "caf\u00e9"
    assert class_of(row(1, "x", group="cafe\u0301"), "group") == "caf\u00e9"
    assert class_of(row(1, "x"), "group") is None


def test_a_field_that_no_row_has_is_a_finding(balanced):
    """Planted: a misspelt field would switch the cap off silently."""
    misspelt = Balance(by="answer.Intent", max_rows=1)
    *_, [finding] = balanced([row(1, '{"intent": "bug"}')], misspelt)
    assert (finding.message, finding.field) == ("no row has answer.Intent", "cleaning.balance.by")


def test_half_a_setting_is_a_finding_and_none_is_off(balanced):
    rows = [row(1, "x"), row(2, "x")]
    for half in (Balance(by="group", max_rows=None), Balance(by=None, max_rows=1)):
        *_, findings = balanced(rows, half)
        assert [finding.rule for finding in findings] == ["balance"]
    assert balanced(rows, Balance(by=None, max_rows=None)) == (rows, [], {}, [])


LABELS = st.lists(st.sampled_from("ab"), max_size=30)


@settings(deadline=None)  # a busy machine is no fault
@given(labels=LABELS, cap=st.integers(1, 10))
def test_a_larger_cap_only_adds_rows(balanced, labels, cap):
    rows = [row(line, f'{{"intent": "{label}"}}') for line, label in enumerate(labels)]
    small, ledger, _, _ = balanced(rows, Balance(by="answer.intent", max_rows=cap))
    large, *_ = balanced(rows, Balance(by="answer.intent", max_rows=cap + 1))
    assert {c.id for c in small} <= {c.id for c in large}
    assert len(small) == sum(min(cap, labels.count(label)) for label in "ab")
    assert len(small) + len(ledger) == len(rows)
