"""The whole assembly on small files: every row is kept or in the ledger, leaks are refused."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.assemble import Settings, assemble
from hashtune.data.leakage import Item
from hashtune.data.patterns import Pattern
from hashtune.data.row_rules import RowRules, Ruled, RuledFile
from hashtune.data.schemas import parse_rows
from hashtune.data.sources import DataFile, Loaded
from hashtune.data.table import Table
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Balance, Filters, NearDuplicates, Normalise

NO_LIMITS = Filters(**dict.fromkeys(Filters.model_fields))
AS_WRITTEN = Normalise(newlines="none", unicode="none", whitespace="none")


def near(threshold) -> NearDuplicates:
    return NearDuplicates(threshold=threshold, shingle=3)


NO_RULES = RowRules(AS_WRITTEN, NO_LIMITS, [])
PLAIN = Settings(
    deduplicate=True,
    near_duplicates=near(None),
    balance=Balance(by=None, max_rows=None),
    weights={"a": 1.0},
    max_rows={"a": None},
    replay_share=0.0,
    fractions={"eval": None, "test": None},
    held_out_rows={"eval": None, "test": None},
    leakage_ngram=4,
    leakage_near=near(None),
    leakage_groups="error",
    leakage_action="error",
    leakage_max_share=0.0,
)


def changed(**settings) -> Settings:
    values = {name: getattr(PLAIN, name) for name in PLAIN.__slots__}
    return Settings(**{**values, **settings})


def loaded(name, texts, groups=None) -> Loaded:
    rows = [
        {
            "messages": [{"role": "user", "content": t}, {"role": "assistant", "content": "a"}],
            "group": groups[i] if groups else None,
        }
        for i, t in enumerate(texts)
    ]
    numbered = enumerate(rows, start=1)
    parsed = parse_rows(numbered, schema="messages", source=name, shown=name)
    file = DataFile(name, f"data/{name}.jsonl", None, "messages", f"data.{name}")
    return Loaded(file, len(rows), parsed.conversations)


def files(**texts) -> dict[str, Loaded]:
    return {name: loaded(name, of) for name, of in texts.items()}


class Assembled:
    """The result in memory: `splits` hold conversations, `ledger` the dropped rows."""

    def __init__(self, prepared):
        self.findings, self.more, self.report = prepared.findings, prepared.more, prepared.report
        self.splits = {
            name: [
                Conversation(**{**row, "messages": json.loads(row["messages"])})
                for row in prepared.written(name)
            ]
            for name in prepared.splits
        }
        self.ledger = list(prepared.table.ledger())


@pytest.fixture(scope="module")
def assembled(spill):
    """Takes files through the rules into a table and assembles it."""

    def run(given_files, suites, settings, rules=NO_RULES) -> Assembled:
        ruled = Ruled(Table(spill))
        for file in given_files.values():
            sink = RuledFile(ruled, rules, file.file)
            for row in file.conversations:
                sink.keep(row)
            sink.close()
        return Assembled(assemble(given_files, ruled, suites, settings))

    return run


def test_files_of_their_own(assembled):
    given_files = files(a=["one", "two", "One", "three"], eval=["e", "E e"], test=["t"])
    prepared = assembled(given_files, {"s": [Item("s", 1, ["q"])]}, PLAIN)
    assert prepared.findings == []
    assert {name: sorted(row.line for row in rows) for name, rows in prepared.splits.items()} == {
        "train": [1, 2, 4],
        "eval": [1, 2],
        "test": [1],
    }
    assert [(row.source, row.line, row.reason) for row in prepared.ledger] == [
        ("a", 3, "duplicate")
    ]
    assert prepared.report["sources"]["a"] == {
        "file": "data/a.jsonl",
        "rows": 4,
        "kept": {"train": 3, "eval": 0, "test": 0},
        "dropped": {"duplicate": 1},
        "repeated": 0,
        "extra_fields": {},
        "notes": [],
    }
    assert prepared.report["splits"] == {"train": 3, "eval": 2, "test": 1}
    assert set(prepared.report["leakage"]) == {"eval", "test", "suite_s"}


def test_duplicates_stay_when_asked_and_get_ids_of_their_own(assembled):
    given_files = files(a=["one", "one"], eval=["e", "e"], test=["t"])
    prepared = assembled(given_files, {}, changed(deduplicate=False))
    [first, second] = sorted(row.id for row in prepared.splits["train"])
    assert second == f"{first}#2"
    assert prepared.report["duplicates"] == {
        "train_eval": 0,
        "train_test": 0,
        "eval_test": 0,
        "train": 1,
        "eval": 1,
        "test": 0,
    }


def test_planted_leaks_are_refused_not_removed(assembled):
    given_files = files(a=["is this a leak or not", "x"], eval=["e"], test=["X ", "y"])
    suites = {"s": [Item("data/s.jsonl", 7, ["Well: is this a leak?"])]}
    prepared = assembled(given_files, suites, PLAIN)
    assert [(f.rule, f.file, f.line) for f in prepared.findings] == [
        ("leakage", None, None),
        ("leaked-item", "data/test.jsonl", 1),
        ("leakage", None, None),
        ("leaked-item", "data/s.jsonl", 7),
    ]
    assert len(prepared.splits["train"]) == 2
    allowed = assembled(given_files, suites, changed(leakage_max_share=1.0))
    assert allowed.findings == []
    assert allowed.report["leakage"]["test"] == {
        "items": 2,
        "exact": 1,
        "ngram": 0,
        "near": 0,
        "kinds": {"question in user": 1},
        "share": 0.5,
        "examples": [
            {
                "file": "data/test.jsonl",
                "line": 1,
                "train_file": "data/a.jsonl",
                "train_line": 2,
                "how": "exact",
                "shared": "x",
                "what": "question",
                "where": "user",
            }
        ],
    }


def test_replay_is_checked_for_leaks_too(assembled):
    given_files = files(a=["one"], replay=["q"], eval=["e"], test=["t"])
    suites = {"s": [Item("data/s.jsonl", 1, ["q"])]}
    assert assembled(given_files, suites, PLAIN).findings == []  # share 0: not in train
    prepared = assembled(given_files, suites, changed(replay_share=0.5))
    assert [finding.rule for finding in prepared.findings] == ["leakage", "leaked-item"]


def test_replay_never_goes_to_a_held_out_split(assembled):
    texts = [f"t{i}" for i in range(40)]
    given_files = files(a=texts, replay=[f"r{i}" for i in range(40)])
    fractions = {"eval": 0.3, "test": 0.3}
    prepared = assembled(given_files, {}, changed(fractions=fractions, replay_share=0.5))
    assert prepared.findings == []
    assert {row.source for row in prepared.splits["eval"] + prepared.splits["test"]} == {"a"}
    assert prepared.report["replay"]["share"] == 0.5


def test_groups_stay_together_when_split_off(assembled):
    texts = [f"t{i}" for i in range(60)]
    given_files = {"a": loaded("a", texts, groups=[f"g{i % 12}" for i in range(60)])}
    prepared = assembled(given_files, {}, changed(fractions={"eval": 0.2, "test": 0.2}))
    assert prepared.findings == []
    sides = [{row.group for row in rows} for rows in prepared.splits.values()]
    assert sum(map(len, sides)) == 12


def test_empty_splits_are_findings(assembled):
    prepared = assembled(files(a=["one"]), {}, changed(fractions={"eval": 0.0, "test": 0.0}))
    assert [(f.message, f.field) for f in prepared.findings] == [
        ("0 rows remain for eval", "data.eval"),
        ("0 rows remain for test", "data.test"),
    ]
    half = assembled(files(a=["one"]), {}, changed(fractions={"eval": 0.5, "test": 0.5}))
    assert half.findings[0].rule == "fractions"


def test_what_empties_a_split_is_named(assembled):
    """One row, or one group larger than every fraction, leaves eval or train empty."""
    fractions = {"eval": 0.0, "test": 0.4}
    one_group = {"a": loaded("a", [f"t{i}" for i in range(9)], groups=["g"] * 9)}
    for given_files in (files(a=["one"]), one_group):
        prepared = assembled(given_files, {}, changed(fractions=fractions))
        sizes = {name: len(rows) for name, rows in prepared.splits.items()}
        empty = [name for name, size in sizes.items() if not size]
        assert [f.field for f in prepared.findings] == [
            {"train": "data.sources"}.get(name, f"data.{name}") for name in empty
        ]
        assert len(empty) == 2
    longer = rules(min_chars=50)
    found = assembled(files(a=["one"], eval=["e"], test=["t"]), {}, PLAIN, longer).findings
    fixes = {finding.message: finding.fix for finding in found}
    assert fixes["no row of a is left (min_chars 1)"].startswith("remove this source")
    loosen = "loosen what drops rows (min_chars 1), or give data.sources more"
    assert fixes["0 rows remain for train"] == loosen


def test_a_group_is_the_same_as_a_number_and_as_text_and_may_be_missing(assembled):
    """A row without a group is on its own, wherever the groups are."""
    given_files = {
        "a": loaded("a", ["one", "two"], groups=[7, None]),
        "eval": loaded("eval", ["e", "f"], groups=["7", None]),
        "test": loaded("test", ["t"], groups=["07"]),
    }
    prepared = assembled(given_files, {}, PLAIN)
    assert prepared.report["groups"] == {"train_eval": 1, "train_test": 0, "eval_test": 0}
    assert "group '7'" in prepared.findings[1].message


def test_a_system_message_that_all_rows_share_is_no_leak(assembled):
    """Nor is one that only train has; what it says of a question is."""
    frame = "you are a helpful assistant who answers in one short sentence"
    given_files = files(a=["one", "two"], eval=["e"], test=["t"])
    for file in given_files.values():
        for row in file.conversations:
            row.messages.insert(0, {"role": "system", "content": frame})
    suites = {"s": [Item("s", 1, ["are you a helpful assistant?"])]}
    settings = changed(leakage_near=near(0.5))
    prepared = assembled(given_files, suites, settings)
    assert prepared.findings == []
    hit = {"s": [Item("s", 1, ["say: a helpful assistant who"])]}
    assert [f.rule for f in assembled(given_files, hit, settings).findings] == [
        "leakage",
        "leaked-item",
    ]


def test_a_share_of_leaks_at_the_limit_passes(assembled):
    given_files = files(a=["q1", "q2"], eval=["e"], test=["q1", "x", "y"])
    third = 1 / 3
    assert assembled(given_files, {}, changed(leakage_max_share=third)).findings == []
    [summary, _] = assembled(given_files, {}, changed(leakage_max_share=third - 1e-9)).findings
    assert summary.rule == "leakage"


def test_held_out_limit_goes_to_the_ledger(assembled):
    given_files = files(a=["one"], eval=["e", "f", "g"], test=["t"])
    prepared = assembled(given_files, {}, changed(held_out_rows={"eval": 2, "test": None}))
    [dropped] = prepared.ledger
    assert dropped == Dropped(dropped.id, "eval", dropped.line, "max_rows", "eval")
    assert prepared.report["splits"]["eval"] == 2


def rules(patterns=(), normalise=AS_WRITTEN, **limits) -> RowRules:
    return RowRules(normalise, NO_LIMITS.model_copy(update=limits), patterns)


def train_lines(prepared) -> list[int]:
    return sorted(row.line for row in prepared.splits["train"])


def test_near_duplicates_of_an_earlier_row_are_dropped(assembled):
    texts = [
        "a b c d e f g h",
        "i j k",
        "a b c d e f g x",
    ]  # 6 runs of 3; 5 shared; 1 of the answer
    given_files = files(a=texts, eval=["e"], test=["t"])
    prepared = assembled(given_files, {}, changed(near_duplicates=near(0.7)))
    assert train_lines(prepared) == [1, 2]
    [dropped] = prepared.ledger
    assert (dropped.line, dropped.reason) == (3, "near_duplicate")
    assert dropped.detail == "near a:1, Jaccard 0.75"
    assert train_lines(assembled(given_files, {}, changed(near_duplicates=near(0.8)))) == [1, 2, 3]


def test_texts_get_their_declared_form_before_ids_and_duplicates(assembled):
    trim = Normalise(newlines="none", unicode="none", whitespace="trim")
    given_files = files(a=[" one ", "two"], replay=[" r "], eval=["e "], test=["t"])
    settings = changed(replay_share=0.3)
    prepared = assembled(given_files, {}, settings, rules(normalise=trim))
    texts = {row.messages[0]["content"] for rows in prepared.splits.values() for row in rows}
    assert texts == {"one", "two", " r ", "e", "t"}
    assert prepared.report["cleaning"]["normalised"] == {
        "a": {"whitespace": 1},
        "eval": {"whitespace": 1},
    }
    plain = assembled(files(a=["one", "two"], eval=["e"], test=["t"]), {}, PLAIN)
    ids = [row.id for row in prepared.splits["train"] if row.source == "a"]
    assert sorted(ids) == sorted(row.id for row in plain.splits["train"])


def test_limits_and_patterns_hold_for_training_rows_only(assembled):
    secret = Pattern("list.secret", re.compile("secret"), None, "drop")
    texts = ["one", "my secret", "a longer text"]
    given_files = files(a=texts, replay=["secret", "other"], eval=["secret too"], test=["t"])
    settings = changed(replay_share=0.5)
    prepared = assembled(given_files, {}, settings, rules([secret], max_chars=9))
    assert prepared.findings == []
    assert [(row.source, row.line, row.reason, row.detail) for row in prepared.ledger] == [
        ("a", 2, "pattern", "list.secret in messages[0].content"),
        ("a", 3, "max_chars", "14 is above 9"),
        ("replay", 1, "pattern", "list.secret in messages[0].content"),
    ]
    assert prepared.report["cleaning"]["patterns"] == {
        "a": {"list.secret": 1},
        "replay": {"list.secret": 1},
    }
    assert prepared.report["splits"] == {"train": 2, "eval": 1, "test": 1}


def test_a_pattern_of_an_error_list_refuses_the_run(assembled):
    secret = Pattern("list.secret", re.compile("secret"), None, "error")
    given_files = files(a=["one", "my secret"], eval=["e"], test=["t"])
    [finding] = assembled(given_files, {}, PLAIN, rules([secret])).findings
    assert (finding.rule, finding.file, finding.line) == ("pattern-found", "data/a.jsonl", 2)


def test_classes_are_capped_in_train(assembled):
    given_files = {
        "a": loaded("a", ["one", "two", "three"], groups=["x", "x", "y"]),
        **files(eval=["e"], test=["t"]),
    }
    prepared = assembled(given_files, {}, changed(balance=Balance(by="group", max_rows=1)))
    assert sorted(row.group for row in prepared.splits["train"]) == ["x", "y"]
    assert [(row.reason, row.detail) for row in prepared.ledger] == [("balance", "group=x")]
    assert prepared.report["cleaning"]["classes"] == {"x": [2, 1], "y": [1, 1]}


def test_a_planted_near_leak_is_refused_when_asked(assembled):
    given_files = files(a=["a b c d e f g h"], eval=["a b c x d e f g h"], test=["t"])
    assert assembled(given_files, {}, changed(leakage_ngram=6)).findings == []
    asked = changed(leakage_ngram=6, leakage_near=near(0.4))
    prepared = assembled(given_files, {}, asked)
    assert [(finding.rule, finding.line) for finding in prepared.findings] == [
        ("leakage", None),
        ("leaked-item", 1),
    ]
    assert prepared.report["leakage"]["eval"]["near"] == 1


def test_a_group_in_train_and_test_is_refused_or_reported(assembled):
    given_files = {
        "a": loaded("a", ["one", "two"], groups=["ann", None]),
        "eval": loaded("eval", ["e"]),
        "test": loaded("test", ["t"], groups=["ann"]),
    }
    refused = assembled(given_files, {}, PLAIN)
    assert [finding.rule for finding in refused.findings] == ["group-leak", "group-leak"]
    reported = assembled(given_files, {}, changed(leakage_groups="report"))
    assert reported.findings == []
    assert reported.report["groups"] == {"train_eval": 0, "train_test": 1, "eval_test": 0}


@settings(deadline=None)  # a busy machine is no fault
@given(
    texts=st.lists(st.text("abc ", max_size=6).map("{}a".format), max_size=15, unique=True),
    more=st.lists(st.text("abc ", max_size=6).map("{}a".format), max_size=15),
    groups=st.lists(st.none() | st.sampled_from("xyz"), min_size=30, max_size=30),
    threshold=st.none() | st.just(0.5),
)
def test_added_rows_never_move_an_old_one(assembled, texts, more, groups, threshold):
    """Through duplicates, near-duplicates and split, with and without groups."""
    settings = changed(fractions={"eval": 0.3, "test": 0.3}, near_duplicates=near(threshold))

    def where(all_texts):
        prepared = assembled({"a": loaded("a", all_texts, groups)}, {}, settings)
        return {row.line: name for name, rows in prepared.splits.items() for row in rows}

    before, after = where(texts), where([*texts, *more])
    assert all(after[line] == name for line, name in before.items())


@settings(deadline=None)  # a busy machine is no fault
@given(
    texts=st.lists(st.text("abc ", max_size=6).map("{}a".format), max_size=15, unique=True),
    more=st.lists(
        st.tuples(st.integers(0, 15), st.text("abcABC ", max_size=6).map("{}a".format)), max_size=10
    ),
    groups=st.lists(st.none() | st.sampled_from("xyz"), min_size=25, max_size=25),
    threshold=st.none() | st.just(0.5),
    cap=st.none() | st.integers(1, 3),
    action=st.sampled_from(["error", "drop"]),
)
def test_rows_added_anywhere_drop_old_ones_at_most(
    assembled, *, texts, more, groups, threshold, cap, action
):
    """An added row may be what an old one repeats, stand before it under a cap, or be held out and
    in it: the old one then goes to the ledger. It never goes to another split."""
    settings = changed(
        fractions={"eval": 0.3, "test": 0.3},
        near_duplicates=near(threshold),
        balance=Balance(by="group" if cap else None, max_rows=cap),
        weights={"a": 0.7},
        leakage_action=action,
    )
    old = list(zip(texts, groups, strict=False))
    new = list(old)
    for place, text in more:
        new.insert(place, (text, groups[-1]))

    def where(rows):
        file = loaded("a", [text for text, _ in rows], [group for _, group in rows])
        prepared = assembled({"a": file}, {}, settings)
        return {row.id: name for name, of in prepared.splits.items() for row in of}, prepared

    (before, _), (after, prepared) = where(old), where(new)
    changed_group = {text for _, text in more}
    gone = {row.id for row in prepared.ledger}
    for row in loaded("a", [text for text, _ in old], groups).conversations:
        if row.id in before and row.messages[0]["content"] not in changed_group:
            assert after.get(row.id) == before[row.id] or row.id in gone


HIT = Pattern("list.hit", re.compile("h"), None, "drop")
SETTINGS = st.builds(
    lambda deduplicate, weight, limit, fraction, share, threshold, cap, action: changed(
        deduplicate=deduplicate,
        weights={"a": weight},
        max_rows={"a": limit},
        fractions={"eval": fraction, "test": None},
        replay_share=share,
        held_out_rows={"eval": 2, "test": 1},
        near_duplicates=near(threshold),
        balance=Balance(by="group" if cap else None, max_rows=cap),
        leakage_near=near(threshold),
        leakage_action=action,
    ),
    st.booleans(),
    st.floats(0.1, 3.0),
    st.none() | st.integers(1, 10),
    st.floats(0.0, 0.4),
    st.floats(0.0, 0.9),
    st.none() | st.floats(0.1, 1.0),
    st.none() | st.integers(1, 3),
    st.sampled_from(["error", "drop"]),
)
RULES = st.builds(
    lambda patterns, form, limits: rules(patterns, form, **limits),
    st.sampled_from([[], [HIT]]),
    st.builds(
        Normalise,
        newlines=st.sampled_from(["none", "lf"]),
        unicode=st.sampled_from(["none", "nfc", "nfkc"]),
        whitespace=st.sampled_from(["none", "trim", "collapse"]),
    ),
    st.dictionaries(st.sampled_from(["min_chars", "max_chars"]), st.integers(1, 8)),
)
ROWS = st.lists(
    st.tuples(st.text("abch \n", max_size=6).map("{}a".format), st.none() | st.sampled_from("xy")),
    max_size=20,
)


@settings(deadline=None)  # a busy machine is no fault
@given(rows=ROWS, settings=SETTINGS, rules=RULES)
def test_rows_in_are_rows_kept_plus_rows_dropped(assembled, rows, settings, rules):
    texts, groups = [text for text, _ in rows], [group for _, group in rows]
    given_files = {
        "a": loaded("a", texts, groups),
        **files(replay=["r", "R", "s"], test=["t", "t"]),
    }
    prepared = assembled(given_files, {}, settings, rules)
    total = prepared.report["rows"]
    assert total["in"] == total["kept"] + sum(total["dropped"].values())
    for name, figures in prepared.report["sources"].items():
        kept, dropped = sum(figures["kept"].values()), sum(figures["dropped"].values())
        assert figures["rows"] == kept + dropped, name
    for split_rows in prepared.splits.values():
        ids = [row.id for row in split_rows]
        assert len(ids) == len(set(ids))
    places = [(row.source, row.line) for row in prepared.ledger]
    assert len(places) == len(set(places))  # a row is dropped once


def test_leaking_train_rows_are_dropped_on_request(assembled):
    """Both rows that hold the question go, by name; the others stay, and nothing leaks."""
    texts = ["is this a leak or not", "x", "so is this a leak or what"]
    given_files = files(a=texts, eval=["e"], test=["is this a leak", "y"])
    assert [f.rule for f in assembled(given_files, {}, PLAIN).findings] == [
        "leakage",
        "leaked-item",
    ]
    prepared = assembled(given_files, {}, changed(leakage_action="drop"))
    assert prepared.findings == []
    assert prepared.report["leakage"]["test"]["share"] == 0.0
    assert prepared.report["rows"]["dropped"] == {"leaked": 2}
    assert [row.line for row in prepared.splits["train"]] == [2]
    detail = "question of data/test.jsonl:1 in user (ngram)"
    assert [(d.line, d.reason, d.detail) for d in prepared.ledger] == [
        (1, "leaked", detail),
        (3, "leaked", detail),
    ]
