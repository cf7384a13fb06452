"""A whole question inside a longer train text is a leak, though it has no run of n words; a common
phrase is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.leakage import Item, leakage, leakage_of_sets, leaking_rows

CAPITAL = "What is the capital of France?"  # 6 words


def row(text, *others):
    return [Item("t", 1, ["nothing"]), Item("t", 2, [text], others)]


def held(*items):
    return [Item("h", line, list(texts)) for line, texts in enumerate(items, start=1)]


def leaks(train, *items, n=8):
    report = leakage(train, held(*items), n)
    return [(leak.line, leak.how, leak.shared) for leak in report.examples]


@pytest.mark.parametrize(
    "text",
    [
        f"Answer in one word. {CAPITAL} Thanks!",
        "Q: what is the CAPITAL of\nFrance",
        "- What is the “capital” of France",
        "what is, the capital of france...",
    ],
)
def test_a_short_question_inside_a_longer_text_leaks(text):
    """Planted: fewer than 8 words, so no run of 8, and not equal."""
    assert leaks(row(text), [CAPITAL]) == [(1, "ngram", "what is the capital of france")]


@pytest.mark.parametrize("kind", ["system", "assistant", "tool", "arguments"])
def test_it_leaks_in_every_text_of_a_row(kind):
    train = row("hello", (kind, f"The quiz asks: {CAPITAL}"))
    report = leakage(train, held([CAPITAL]), 8)
    assert report.kinds == {f"question in {kind}": 1}
    [(place, detail)] = leaking_rows(train, {"test": held([CAPITAL])}, 8)
    assert (place, detail) == (1, f"question of h:1 in {kind} (ngram)")


@pytest.mark.parametrize(
    "question",
    ["yes", "ok thanks", "hello, how are you", "is it a dog or", "thank you very much"],
)
def test_common_short_phrases_are_no_questions(question):
    """Up to half of n words, or fewer than 20 characters."""
    assert leaks(row(f"well, {question} then, I said"), [question]) == []


@pytest.mark.parametrize(
    "text",
    [
        "what is the capital of francesco",
        "what is the old capital of france",
        "the capital of france what is",
        "what is the capital of",
    ],
)
def test_a_part_or_other_words_are_no_leak(text):
    assert leaks(row(text), [CAPITAL]) == []


def test_another_sum_is_another_question():
    train = row("Now tell me how much is 12 + 30 in all")
    assert leaks(train, ["how much is 12 - 30?"], ["how much is 12 + 31?"]) == []
    assert leaks(train, ["how much is 12 + 30 ?"]) == [(1, "ngram", "how much is 12 + 30")]


def test_more_than_half_of_n_words_are_needed():
    text = "say international organisations"  # 3 words
    assert leaks(row(f"please {text} twice"), [text], n=4) != []
    assert leaks(row(f"please {text} twice"), [text], n=5) != []
    assert leaks(row(f"please {text} twice"), [text], n=6) == []


def test_a_turn_of_several_conversations_is_a_phrase():
    turn = "Could you explain that once more?"
    train = row(f"And then: {turn} Please.")
    assert leaks(train, ["a", turn], ["b", turn]) == []
    assert leaks(train, ["a", turn], ["b", "c"]) != []
    # the same item twice is one; in another set it is its own
    assert [line for line, *_ in leaks(train, ["a", turn], ["a", turn])] == [1, 2]
    sets = {"eval": held(["a", turn]), "test": held(["b", turn])}
    assert [report.leaked for report in leakage_of_sets(train, sets, 8).values()] == [1, 1]


def test_equal_wins_over_inside():
    train = [*row(f"So: {CAPITAL}"), Item("t", 3, [CAPITAL])]
    report = leakage(train, held([CAPITAL]), 8)
    assert (report.exact, report.ngram, report.examples[0].train_line) == (1, 0, 3)


def test_an_answer_is_found_by_runs_of_n_words_only():
    items = [Item("h", 1, ["who?"], (), ["The capital of France is Paris"])]
    assert leakage(row("Yes, the capital of France is Paris."), items, 8).leaked == 0


TOKENS = st.lists(st.sampled_from(["alphabet", "betamax", "+"]), max_size=8)


@settings(deadline=None)  # a busy machine is no fault
@given(train=TOKENS, questions=st.lists(TOKENS, max_size=4, unique_by=tuple))
def test_agrees_with_the_definition(train, questions):
    """n is 9: from 5 words and 20 characters on, whole, without signs at the ends."""
    questions = [" ".join(question) for question in questions]
    whole = [question.strip("+ ") for question in questions]
    text = " ".join(train)
    expected = [
        line
        for line, question in enumerate(questions)
        if question == text
        or (
            len(question.replace("+", "").split()) >= 5
            and f" {whole[line]} " in f" {text} "
            and whole.count(whole[line]) == 1
        )
    ]
    report = leakage([Item("t", 1, [text])], held(*([question] for question in questions)), 9)
    assert [leak.line - 1 for leak in report.examples] == expected
