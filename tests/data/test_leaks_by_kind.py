"""Questions and answers of the held-out side in every kind of train text; what is no evidence."""

import json

import pytest

from hashtune.data.leakage import Item, check_leakage, leakage, leaking_rows

LONG = "the quick brown fox jumps over the lazy dog"
OTHER = "one two three four five six seven eight"
KINDS = ["system", "assistant", "tool", "arguments"]


def train(*others, texts=("hello",)):
    return [Item("train.jsonl", 1, ["nothing"]), Item("train.jsonl", 2, list(texts), others)]


def held(*pairs):
    return [Item("test.jsonl", n, [q], (), [a]) for n, (q, a) in enumerate(pairs, start=1)]


def told(report):
    return [(leak.line, leak.how, leak.what, leak.where) for leak in report.examples]


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_in_any_text_of_a_train_row(kind):
    items = held((LONG, "yes"), ("is it?", "no"))
    assert told(leakage(train((kind, f"so: {LONG}!")), items, 5)) == [
        (1, "ngram", "question", kind)
    ]
    assert told(leakage(train((kind, LONG.upper())), items, 5)) == [(1, "exact", "question", kind)]
    assert leakage(train((kind, OTHER)), items, 5).leaked == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_answer_in_any_text_of_a_train_row(kind):
    report = leakage(train((kind, f"so: {LONG}!")), held(("who?", LONG)), 5)
    assert told(report) == [(1, "ngram", "answer", kind)]
    assert report.kinds == {f"answer in {kind}": 1}
    report = leakage(train(texts=[LONG]), held(("who?", LONG)), 5)
    assert told(report) == [(1, "exact", "answer", "user")]


@pytest.mark.parametrize("take", [True, False])
def test_a_question_that_is_a_label_takes_no_row_of_that_label_away(take):
    """Planted by BANKING77: a test question "Pending transfer?", and an intent of that name whose
    148 training rows were dropped for it."""
    items = held(("Pending transfer?", "pending transfer"), ("Pending? Transfer it!", "no"))
    rows = [Item("t", n, [f"row {n}"], [("assistant", "pending transfer")]) for n in (1, 2)]
    asked = Item("t", 3, ["pending transfer"], [("assistant", "pending transfer")])

    def found(train_rows, n=8):
        if take:
            return [
                (leak.train_line, leak.where) for leak in leakage(train_rows, items, n).examples
            ]
        return [(train_rows[at].line, "user") for at, _ in leaking_rows(train_rows, {"": items}, n)]

    assert found(rows) == []
    assert found([*rows, asked]) == [(3, "user")]  # who asks it gives it away all the same


def test_a_question_long_enough_to_be_no_label_counts_in_every_text():
    """At n = 8: five words and 20 characters."""
    whole = ("assistant", "why is my card late")  # 19 characters
    longer = ("assistant", "when is my card late")
    for (kind, text), leaked in ((whole, 0), (longer, 1)):
        assert leakage(train((kind, text)), held((text, "x")), 8).leaked == leaked, text
    four = "understanding international transactions properly"
    assert leakage(train(("assistant", four)), held((four, "x")), 8).leaked == 0


def test_a_short_answer_is_no_evidence():
    """One word less than n."""
    items = held(("who?", "billing"), ("what?", "the quick brown fox"))
    rows = train(("assistant", "billing"), ("assistant", "the quick brown fox"))
    assert leakage(rows, items, 5).leaked == 0
    assert leakage(rows, items, 4).leaked == 1


def test_an_answer_that_several_rows_share_is_no_evidence():
    rows = train(("assistant", LONG))
    assert leakage(rows, held(("a?", LONG), ("b?", LONG)), 5).leaked == 0
    own = f"{LONG} {OTHER}"  # its own words count, the shared ones do not
    report = leakage(train(("assistant", own)), held(("a?", own), ("b?", LONG)), 5)
    assert told(report) == [(1, "exact", "answer", "assistant")]


def test_labels_in_json_are_no_evidence_but_a_text_in_it_is():
    label = '{"intent": "billing", "priority": "high", "team": "payments", "mood": "bad"}'
    rows = train(("assistant", label), ("assistant", json.dumps({"summary": LONG, "x": 1})))
    assert leakage(rows, held(("a?", label)), 5).leaked == 0
    assert leakage(rows, held(("a?", json.dumps({"summary": LONG}))), 5).kinds == {
        "answer in assistant": 1
    }


def test_findings_name_what_is_where():
    items = held((LONG, "yes"), ("b?", OTHER))
    report = leakage(train(("tool", LONG), ("assistant", f"{OTHER} nine")), items, 8)
    _, first, second = check_leakage("test", report, max_share=0.0, n=8)
    assert str(first) == (
        "test.jsonl:1: test item equals the tool text of train.jsonl:2: "
        "'the quick brown fox jumps over the lazy dog' [leaked-item]"
    )
    assert str(second) == (
        "test.jsonl:2: test item's answer shares words with the assistant text of train.jsonl:2: "
        "'one two three four five six seven eight' [leaked-item]"
    )


def test_every_leaking_row_is_named_not_the_first_alone():
    rows = [Item("t", n, [text]) for n, text in enumerate([LONG, "x", f"well {LONG}", OTHER])]
    assert list(leaking_rows(rows, {"test": held((LONG, OTHER))}, 8)) == [
        (0, "question of test.jsonl:1 in user (exact)"),
        (2, "question of test.jsonl:1 in user (ngram)"),
        (3, "answer of test.jsonl:1 in user (exact)"),
    ]
