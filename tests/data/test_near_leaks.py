"""Held-out texts that are nearly a train text are leaks of a third kind."""

from hashtune.data.leakage import Item, Leak, check_leakage, leakage_of_sets
from hashtune.data.near_leaks import add_near_leaks

TRAIN = [
    Item("train.jsonl", 1, ["a text of no interest at all here"]),
    Item("train.jsonl", 2, ["hi", "Tom has 3 apples, buys 4 more and eats 2. How many are left?"]),
]
PLANTED = "Tom has 3 pears, buys 4 more and eats 2. How many are left?"


def leaks(texts, *, threshold=0.6, n=2, ngram=12):
    held = {"test": [Item("test.jsonl", i, [text]) for i, text in enumerate(texts, start=1)]}
    reports = leakage_of_sets(TRAIN, held, ngram)
    add_near_leaks(reports, TRAIN, held, threshold=threshold, n=n)
    return reports["test"]


def test_a_changed_word_does_not_hide_a_leak():
    report = leaks(["something new", PLANTED])
    # 15 words and signs, 16 runs of 2: two runs hold the changed word
    assert (report.exact, report.ngram, report.near, report.share) == (0, 0, 1, 0.5)
    [leak] = report.examples
    assert leak == Leak("test.jsonl", 2, "train.jsonl", 2, "near", leak.shared)
    [summary, finding] = check_leakage("test", report, max_share=0.0, n=12)
    assert "1 of 2 items of test are in train (share 0.5, 0 exact, 0 by 12 words, 1 near)" in str(
        summary
    )
    assert str(finding) == (
        f"test.jsonl:2: test item is nearly train.jsonl:2: {leak.shared!r} [leaked-item]"
    )
    assert check_leakage("test", report, max_share=0.5, n=12) == []


def test_below_the_threshold_nothing_leaks():
    assert leaks([PLANTED], threshold=0.95).near == 0


def test_an_item_counts_once_and_examples_stay_in_item_order():
    report = leaks([PLANTED, "HI", "x", "a text of no interest at all there"])
    assert (report.exact, report.ngram, report.near) == (1, 0, 2)
    assert [(leak.line, leak.how) for leak in report.examples] == [
        (1, "near"),
        (2, "exact"),
        (4, "near"),
    ]
