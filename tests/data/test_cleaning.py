"""Policies for bad rows, normalisation and exact deduplication."""

from typing import NamedTuple

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hashtune.data.cleaning import Judge, Policy, content_key, deduplicate, normalise
from hashtune.data.schemas import BadRow, parse_rows
from hashtune.errors import KEPT, Finding
from hashtune.records import Conversation, Dropped

# cases.md C41: one good row, output null, missing, blank
ROWS = [
    {"instruction": "i", "output": "good"},
    {"instruction": "i", "output": None},
    {"instruction": "i"},
    {"instruction": "i", "output": "  "},
]


class Judged(NamedTuple):
    findings: list[Finding]
    dropped: list[Dropped]


def judge(rows, on_bad_row, share):
    numbered = enumerate(rows, start=1)
    parsed = parse_rows(numbered, schema="instruction", source="s", shown="d.jsonl")
    judge = Judge(Policy(on_bad_row, share), source="s", shown="d.jsonl")
    dropped = [row for row in map(judge.of_row, parsed.bad) if row]
    return Judged(judge.of_file(len(parsed.conversations)).findings, dropped)


def talk(user, answer="a", *, line=1, source="s", **extra):
    messages = [
        {"role": "user", "content": user},
        {"role": "assistant", "content": answer, **extra},
    ]
    return Conversation(f"{line:016x}", source, messages, line)


def test_error_policy_reports_every_row():
    verdict = judge(ROWS, "error", 1.0)
    assert [(f.rule, f.line) for f in verdict.findings] == [
        ("null", 2),
        ("missing", 3),
        ("blank", 4),
    ]
    assert verdict.dropped == []


def test_drop_policy_counts_by_reason():
    verdict = judge(ROWS, "drop", 0.75)
    assert verdict.findings == []
    assert [(row.line, row.reason, row.detail) for row in verdict.dropped] == [
        (2, "null", "output"),
        (3, "missing", "output"),
        (4, "blank", "output"),
    ]


def test_drop_policy_stops_above_the_limit():
    verdict = judge(ROWS, "drop", 0.74)
    assert str(verdict.findings[0]) == (
        "d.jsonl: cleaning.max_drop_share: kept 1, dropped 3 (blank 1, missing 1, null 1): "
        "share 0.75 is above 0.74 [drop-share]"
    )
    assert [finding.line for finding in verdict.findings[1:]] == [2, 3, 4]


def test_drop_policy_never_leaves_nothing():
    [finding, *_] = judge(ROWS[1:], "drop", 1.0).findings
    expected = "kept 0, dropped 3 (blank 1, missing 1, null 1): 0 rows remain"
    assert (finding.rule, finding.message) == ("no-rows", expected)


def test_a_policy_by_rule_drops_only_what_it_names():
    verdict = judge(ROWS, {"default": "error", "blank": "drop"}, 0.25)
    assert [(row.line, row.reason) for row in verdict.dropped] == [(4, "blank")]
    assert [(f.rule, f.line) for f in verdict.findings] == [("null", 2), ("missing", 3)]
    most = judge(ROWS, {"default": "drop", "null": "error"}, 0.5)
    assert [(row.line, row.reason) for row in most.dropped] == [(3, "missing"), (4, "blank")]
    assert [(f.rule, f.line) for f in most.findings] == [("null", 2)]


def test_a_row_is_dropped_only_if_every_rule_that_it_breaks_may_be():
    rows = [{"instruction": "i", "output": "o"}, {"instruction": " ", "output": None}]
    verdict = judge(rows, {"default": "error", "blank": "drop"}, 1.0)
    assert verdict.dropped == []
    assert [(f.rule, f.field) for f in verdict.findings] == [
        ("blank", "instruction"),
        ("null", "output"),
    ]


def test_a_policy_by_rule_keeps_the_limit():
    rows = [*ROWS[:1], *ROWS[2:]]
    verdict = judge(rows, {"default": "error", "blank": "drop"}, 0.3)
    assert [(f.rule, f.line) for f in verdict.findings] == [
        ("drop-share", None),
        ("missing", 2),
        ("blank", 3),
    ]
    assert "kept 1, dropped 1 (blank 1): share 0.3333 is above 0.3" in verdict.findings[0].message


RULE = st.sampled_from(["null", "missing", "blank"])
ACTION = st.sampled_from(["error", "drop"])


@settings(deadline=None)  # a busy machine is no fault
@given(rows=st.lists(st.sampled_from(ROWS)), by_rule=st.dictionaries(RULE, ACTION), other=ACTION)
def test_rows_in_are_kept_dropped_or_refused(rows, by_rule, other):
    policy = {"default": other, **by_rule}
    verdict = judge(rows, policy, 1.0)
    kept = sum(row == ROWS[0] for row in rows)
    refused = [f for f in verdict.findings if f.rule in {"null", "missing", "blank"}]
    if not [f for f in verdict.findings if f.rule == "no-rows"]:
        assert len(rows) == kept + len(verdict.dropped) + len(refused)
    assert all(
        {"default": other, **by_rule}.get(d.reason, other) == "drop" for d in verdict.dropped
    )


def test_clean_rows_need_no_policy():
    assert judge(ROWS[:1], "error", 0.0).findings == []


def test_normalise():
    assert (
        normalise("  Cafe\u0301\u2028\tSTRASSE\n")
        == normalise("caf\u00e9 straße")
        == "café strasse"
    )


def test_what_nobody_sees_makes_no_other_text(table_of):
    """Planted: a zero-width space hid a copy from duplicates and from the search for leaks."""
    unseen = "\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a\u202e\u2066\u2069\ufe0f"
    assert normalise(f"he{unseen}llo") == "hello"
    assert normalise("\ufeff hi\u200b \u200bthere\u00a0\u200e") == "hi there"
    assert normalise("caf\u00e9") == normalise("cafe\u00ad\u0301")  # the accent meets its letter
    family = "\U0001f468\u200d\U0001f469"
    assert normalise(family) == family != "\U0001f468\U0001f469"
    rows = [talk("hello there", line=1), talk("hello\u200b there", line=2)]
    assert list(deduplicate(table_of(rows), np.arange(2))) == [0]


@settings(deadline=None)  # a busy machine is no fault
@given(st.text(st.characters(codec="ascii")))
def test_plain_text_has_the_form_that_all_text_has(text):
    assert normalise(f"{text} \u00e9") == f"{normalise(text)} \u00e9".strip()


@settings(deadline=None)  # a busy machine is no fault
@given(st.text())
@example("a\u200b \u200b\u00ad\u0301\ufeff")
def test_normalise_is_idempotent(text):
    assert normalise(normalise(text)) == normalise(text)


def test_deduplicate_keeps_the_first_and_says_which(table_of):
    rows = [
        talk("Hello  there", line=1),
        talk("hello there", line=2),
        talk("hello there", "b", line=3),
        talk("HELLO THERE", line=4, source="t"),
        talk("hello there", line=5, train=False),
    ]
    table = table_of(rows)
    assert list(deduplicate(table, np.arange(5))) == [0, 2, 4]
    assert list(table.ledger()) == [
        Dropped(f"{2:016x}", "s", 2, "duplicate", "same as s:1"),
        Dropped(f"{4:016x}", "t", 4, "duplicate", "same as s:1"),
    ]


def test_null_fields_and_blanks_in_reasoning_make_no_other_row(table_of):
    """Planted: a Parquet row has every field, those without a value as null."""
    rows = [
        talk("q", line=1, reasoning_content="so  it is"),
        talk("q", line=2, reasoning_content="So it is", tool_calls=None, name=None),
        talk("q", line=3, reasoning_content="so it is not"),
        talk("q", line=4),
        talk("q", line=5, reasoning_content=None),
    ]
    assert list(deduplicate(table_of(rows), np.arange(5))) == [0, 2, 3]


def test_deduplicate_looks_at_the_given_rows_only(table_of):
    table = table_of([talk("x", line=line) for line in (1, 2, 3)])
    assert list(deduplicate(table, np.array([1, 2]))) == [1]
    assert [(row.line, row.detail) for row in table.ledger()] == [(3, "same as s:2")]


def test_findings_beyond_the_first_are_counted_by_rule():
    judge = Judge(Policy("drop", 0.0), source="s", shown="d.jsonl")
    for line in range(KEPT + 5):
        judge.of_row(BadRow("0", line, [Finding("blank", "blank", line=line)]))
    verdict = judge.of_file(kept=1)
    assert verdict.findings[0].rule == "drop-share"
    assert verdict.findings[-1].line == KEPT - 1
    assert verdict.more == {"blank": 5}


def test_content_key_does_not_join_messages():
    one = Conversation("1", "s", [{"role": "user", "content": "a b"}])
    two = Conversation(
        "2", "s", [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    )
    call = Conversation(
        "3", "s", [{"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}]
    )
    assert len({content_key(row) for row in (one, two, call)}) == 3
