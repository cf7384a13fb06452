"""The replay prompts: well formed, unique, and without what the frozen suites ask."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hashtune.data.cleaning import normalise
from hashtune.data.short_questions import ShortQuestions
from hashtune.data.words import words_and_signs

DATA = Path(__file__).resolve().parents[2] / "data"
NGRAM = 8  # cleaning.leakage_ngram


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file under data/."""
    text = (DATA / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, punctuation left out."""
    return re.findall(r"\w+", text.lower())


def shared_ngrams(a: Iterable[str], b: Iterable[str], n: int) -> set[tuple[str, ...]]:
    """Return the n-word runs in both collections; a shorter text counts as one run."""

    def ngrams(texts: Iterable[str]) -> set[tuple[str, ...]]:
        split = map(words, texts)
        return {tuple(w[i : i + n]) for w in split for i in range(max(1, len(w) - n + 1))}

    return ngrams(a) & ngrams(b)


def short_questions_in(texts: Iterable[str], questions: Iterable[str]) -> list[str]:
    """Questions of fewer than NGRAM words that stand in a text, as prepare looks for them."""
    asked = ShortQuestions(NGRAM)
    for number, question in enumerate(questions):
        asked.add(("suite", number), normalise(question))
    return [
        question
        for text in texts
        for _, question in asked.found_in(words_and_signs(normalise(text)), take=False)
    ]


def suite_texts() -> list[str]:
    """Return every prompt and question of the suites."""
    rows = [row for file in sorted((DATA / "suites").iterdir()) for row in read_rows(str(file))]
    return [row.get("prompt") or row["question"] for row in rows]


def replay_texts() -> list[str]:
    """Return every replay prompt."""
    return [row["messages"][0]["content"] for row in read_rows("replay/prompts.jsonl")]


def test_helpers_find_planted_faults():
    assert shared_ngrams(["Who wrote it?"], ["who wrote it"], 8) == {("who", "wrote", "it")}
    assert shared_ngrams(["a b c d"], ["z b c d e"], 3) == {("b", "c", "d")}
    assert shared_ngrams(["a b c d"], ["a b x c d"], 3) == set()
    asked = ["What is the capital of Peru?", "Tea?"]
    assert short_questions_in(["So: what is the capital of Peru? Tea?"], asked) == [
        "what is the capital of peru"
    ]


def test_replay_prompts_are_single_user_turns():
    rows = read_rows("replay/prompts.jsonl")
    assert [row["id"] for row in rows] == [f"replay-{i:03d}" for i in range(1, 301)]
    for row in rows:
        assert set(row) == {"id", "messages"}
        assert [set(message) for message in row["messages"]] == [{"role", "content"}]
        assert row["messages"][0]["role"] == "user"
        assert 0 < len(row["messages"][0]["content"].split()) <= 30, row["id"]


def test_no_prompt_repeats():
    texts = [" ".join(words(text)) for text in suite_texts() + replay_texts()]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_replay_shares_no_run_of_eight_words_with_the_suites():
    assert shared_ngrams(replay_texts(), suite_texts(), NGRAM) == set()


def test_no_short_question_of_the_suites_stands_in_a_replay_prompt():
    assert short_questions_in(replay_texts(), suite_texts()) == []


def test_replay_is_not_about_triage():
    jargon = {"triage", "ticket", "invoice", "refund", "courier", "subscription", "priority"}
    assert [text for text in replay_texts() if jargon & set(words(text))] == []
