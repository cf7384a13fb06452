"""Planted leaks are caught, with both places; clean data passes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.leakage import (
    Item,
    Leak,
    check_leakage,
    leakage,
    leakage_of_sets,
)
from hashtune.data.words import words

TRAIN = [
    Item("train.jsonl", 1, ["The quick brown fox jumps over the lazy dog today"]),
    Item("train.jsonl", 2, ["yes", "What is 2+2?"]),
]


def held(*texts):
    return [Item("test.jsonl", line, [text]) for line, text in enumerate(texts, start=1)]


def test_exact_match_after_normalisation():
    report = leakage(TRAIN, held("what  is 2+2?", "what is 2-2?", "YES", "no"), 5)
    assert (report.items, report.exact, report.ngram, report.share) == (4, 2, 0, 0.5)
    assert report.examples == [
        Leak("test.jsonl", 1, "train.jsonl", 2, "exact", "what is 2+2?"),
        Leak("test.jsonl", 3, "train.jsonl", 2, "exact", "yes"),
    ]


def test_punctuation_around_a_text_makes_no_other_text():
    """Planted: too short for runs of words, so that a full stop hid it."""
    texts = ["What is 2+2", "“what is 2+2?!”", "yes.", "(Yes)", "what is 2+2-", "-yes", "?", "!"]
    report = leakage([*TRAIN, Item("t", 3, ["!"])], held(*texts), 8)
    assert [leak.line for leak in report.examples] == [1, 2, 3, 4, 8]
    assert report.exact == 5


def test_run_of_n_words():
    item = "I saw: a QUICK, brown fox jumps over it"
    assert leakage(TRAIN, held(item), 6).ngram == 0
    report = leakage(TRAIN, held(item), 5)
    assert (report.exact, report.ngram, report.share) == (0, 1, 1.0)
    assert report.examples == [
        Leak("test.jsonl", 1, "train.jsonl", 1, "ngram", "quick brown fox jumps over")
    ]


def test_short_text_inside_a_long_one_is_no_leak():
    assert leakage(TRAIN, held("quick brown fox"), 4).share == 0.0


def test_exact_wins_over_an_earlier_run():
    text = "The quick brown fox jumps over the fence"
    report = leakage([*TRAIN, Item("train.jsonl", 3, [text])], held(text), 5)
    assert (report.exact, report.ngram) == (1, 0)
    assert report.examples[0].train_line == 3


def test_sets_are_reported_apart():
    sets = {"eval": held("yes"), "test": held("yes", "maybe"), "suite": []}
    reports = leakage_of_sets(TRAIN, sets, 3)
    assert {name: (r.exact, r.items, r.share) for name, r in reports.items()} == {
        "eval": (1, 1, 1.0),
        "test": (1, 2, 0.5),
        "suite": (0, 0, 0.0),
    }


def test_any_turn_of_a_conversation_counts_once():
    item = Item("test.jsonl", 1, ["hello", "yes", "what is 2+2?"])
    assert leakage(TRAIN, [item], 3).exact == 1


def test_scripts_without_spaces_are_compared_by_character():
    assert words("abc 今日は x_1") == ["abc", "今", "日", "は", "x_1"]
    train = [Item("t", 1, ["明日の天気はどうですか"])]
    assert leakage(train, held("では明日の天気はどう?"), 5).ngram == 1


def test_findings_name_the_items_above_the_limit():
    report = leakage(TRAIN, held("yes", "no"), 3)
    assert check_leakage("test", report, max_share=0.5, n=3) == []
    summary, item = check_leakage("test", report, max_share=0.49, n=3)
    assert summary.message == (
        "1 of 2 items of test are in train (share 0.5, 1 exact, 0 by 3 words), the limit is 0.49"
    )
    assert summary.field == "cleaning.leakage_max_share"
    assert str(item) == "test.jsonl:1: test item equals train.jsonl:2: 'yes' [leaked-item]"


WORDS = st.lists(st.sampled_from("abcde"), max_size=12).map(" ".join)


def by_hand(train: list[str], text: str, n: int) -> bool:
    def grams(of: str) -> set[tuple[str, ...]]:
        tokens = of.split()
        return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}

    return text in train or any(grams(text) & grams(other) for other in train)


@settings(deadline=None)  # a busy machine is no fault
@given(train=st.lists(WORDS, max_size=6), texts=st.lists(WORDS, max_size=6), n=st.integers(1, 5))
def test_agrees_with_the_definition(train, texts, n):
    rows = [Item("t", line, [text]) for line, text in enumerate(train)]
    found = {leak.line for leak in leakage(rows, held(*texts), n).examples}
    assert found == {i for i, text in enumerate(texts, start=1) if by_hand(train, text, n)}


def test_a_phrase_shared_by_every_row_is_not_quadratic():
    """Pair by pair, 10,000 rows against 10,000 are minutes: the suite would show it."""
    frame = "sort the following ticket by intent and by priority please"
    train = [Item("t", i, [f"{frame} {i}", "yes"]) for i in range(10_000)]
    held_out = [Item("h", i, [f"{frame} x{i}"]) for i in range(10_000)]
    assert leakage(train, held_out, 8).ngram == 10_000
