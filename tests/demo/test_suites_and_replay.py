"""The frozen suites and replay prompts: well formed, unique, and without overlap."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hashtune.evaluation.rules import check_rules

DATA = Path(__file__).resolve().parents[2] / "data"
GENERATED = {"instructions": ("instr", 24), "refusals": ("refuse", 12)}


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


def item_faults(item: dict[str, Any]) -> list[str]:
    """Return what is wrong with a multiple choice item."""
    faults = []
    if set(item) != {"id", "slice", "question", "choices", "answer"}:
        faults.append("keys")
    if len(set(item["choices"])) != 4 or any(c != c.strip() or not c for c in item["choices"]):
        faults.append("choices")
    if type(item["answer"]) is not int or not 0 <= item["answer"] < 4:
        faults.append("answer")
    return faults


def suite_texts() -> list[str]:
    """Return every prompt and question of the three suites."""
    prompts = [row["prompt"] for name in GENERATED for row in read_rows(f"suites/{name}.jsonl")]
    return prompts + [row["question"] for row in read_rows("suites/knowledge.jsonl")]


def replay_texts() -> list[str]:
    """Return every replay prompt."""
    return [row["messages"][0]["content"] for row in read_rows("replay/prompts.jsonl")]


def test_helpers_find_planted_faults():
    assert shared_ngrams(["Who wrote it?"], ["who wrote it"], 8) == {("who", "wrote", "it")}
    assert shared_ngrams(["a b c d"], ["z b c d e"], 3) == {("b", "c", "d")}
    assert shared_ngrams(["a b c d"], ["a b x c d"], 3) == set()
    good = {"id": "k", "slice": "s", "question": "q", "choices": list("abcd"), "answer": 3}
    assert item_faults(good) == []
    assert item_faults(good | {"answer": True}) == ["answer"]
    assert item_faults(good | {"answer": 4, "choices": list("aabc")}) == ["choices", "answer"]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_items_are_well_formed(name):
    prefix, count = GENERATED[name]
    rows = read_rows(f"suites/{name}.jsonl")
    assert [row["id"] for row in rows] == [f"{prefix}-{i:02d}" for i in range(1, count + 1)]
    for row in rows:
        assert set(row) == {"id", "slice", "prompt", "rules"}
        assert row["slice"] == name
        assert check_rules(row["rules"]) == [], row["id"]


def test_half_of_the_refusal_items_must_be_answered():
    kinds = Counter(row["rules"][0]["kind"] for row in read_rows("suites/refusals.jsonl"))
    assert kinds == {"refusal": 6, "no_refusal": 6}


def test_knowledge_items_are_well_formed_and_balanced():
    rows = read_rows("suites/knowledge.jsonl")
    assert [row["id"] for row in rows] == [f"know-{i:02d}" for i in range(1, 49)]
    assert {row["slice"] for row in rows} == {"knowledge"}
    assert [fault for row in rows for fault in item_faults(row)] == []
    assert Counter(row["answer"] for row in rows) == {0: 12, 1: 12, 2: 12, 3: 12}


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
    assert shared_ngrams(replay_texts(), suite_texts(), 8) == set()


def test_replay_is_not_about_triage():
    jargon = {"triage", "ticket", "invoice", "refund", "courier", "subscription", "priority"}
    assert [text for text in replay_texts() if jargon & set(words(text))] == []
