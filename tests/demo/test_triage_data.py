"""The committed triage data: reproducible, well formed, balanced, and disjoint across splits."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

TRIAGE = Path(__file__).resolve().parents[2] / "data" / "triage"
SIZES = {"train": 1280, "eval": 160, "test": 220}
INTENTS = {"billing", "delivery", "login", "bug", "cancel", "question"}
PRIORITIES = {"low", "normal", "high"}
PAIRS = list(combinations(SIZES, 2))


def read_rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a split."""
    text = (TRIAGE / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


ROWS = {split: read_rows(split) for split in SIZES}
POOLS = {split: json.loads((TRIAGE / "pools" / f"{split}.json").read_text()) for split in SIZES}


def turns(split: str) -> list[tuple[str, dict[str, str]]]:
    """Return every user text of a split with the triage that answers it."""
    pairs = []
    for row in ROWS[split]:
        users, answers = row["messages"][1::2], row["messages"][2::2]
        for user, reply in zip(users, answers, strict=True):
            pairs.append((user["content"], json.loads(reply["content"])))
    return pairs


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, punctuation left out."""
    return re.findall(r"\w+", text.lower())


def shared_ngrams(a: Iterable[str], b: Iterable[str], n: int) -> set[tuple[str, ...]]:
    """Return the n-word runs that occur in both collections of texts."""

    def ngrams(texts: Iterable[str]) -> set[tuple[str, ...]]:
        split = map(words, texts)
        return {tuple(run[i : i + n]) for run in split for i in range(len(run) - n + 1)}

    return ngrams(a) & ngrams(b)


def repeated(texts: Iterable[str]) -> list[str]:
    """Return the texts that occur more than once after normalising."""
    counts = Counter(" ".join(words(text)) for text in texts)
    return [text for text, count in counts.items() if count > 1]


def off_balance(labels: Iterable[str], classes: set[str]) -> dict[str, float]:
    """Return the classes whose share lies outside 0.8 to 1.3 times the uniform share."""
    counts = Counter(labels)
    ratios = {name: counts[name] * len(classes) / counts.total() for name in classes}
    return {name: ratio for name, ratio in ratios.items() if not 0.8 <= ratio <= 1.3}


def leaves(pool: Any) -> set[str]:
    """Return every text in a nested pool, in lower case and without the empty ones."""
    if isinstance(pool, str):
        return {pool.lower()} - {""}
    children = pool.values() if isinstance(pool, dict) else pool
    return set().union(*(leaves(child) for child in children))


def cue_levels(text: str, cues: dict[str, list[str]]) -> set[str]:
    """Return the priorities whose cue phrases occur word for word in the text."""
    return {level for level, phrases in cues.items() if any(cue in text for cue in phrases)}


def test_helpers_find_planted_faults():
    assert shared_ngrams(["a b c d"], ["x b, C d"], 3) == {("b", "c", "d")}
    assert shared_ngrams(["a b c d"], ["x b, c y"], 3) == set()
    assert repeated(["No rush!", "no  rush", "rush"]) == ["no rush"]
    assert off_balance(["low"] * 8 + ["high"] * 2, {"low", "high"}) == {"low": 1.6, "high": 0.4}
    assert leaves({"a": ["X", ""], "b": {"c": ["y"]}}) == {"x", "y"}
    assert cue_levels("Help. No rush.", {"low": ["No rush."], "high": ["Now."]}) == {"low"}


def test_generating_again_gives_the_same_bytes(tmp_path):
    script = str(TRIAGE / "generate.py")
    subprocess.run([sys.executable, script, "--out", str(tmp_path)], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{s}.jsonl" for s in SIZES)
    for split in SIZES:
        fresh, committed = tmp_path / f"{split}.jsonl", TRIAGE / f"{split}.jsonl"
        assert fresh.read_bytes() == committed.read_bytes(), split


@pytest.mark.parametrize("split", SIZES)
def test_rows_have_ids_roles_and_follow_ups(split):
    rows = ROWS[split]
    assert [row["id"] for row in rows] == [f"{split}-{i:04d}" for i in range(1, SIZES[split] + 1)]
    for row in rows:
        roles = [message["role"] for message in row["messages"]]
        assert roles in (["system", "user", "assistant"], ["system", *["user", "assistant"] * 2])
        assert row["messages"][0]["content"] == "Triage the support ticket."
    assert 0.10 <= sum(len(row["messages"]) == 5 for row in rows) / len(rows) <= 0.14


@pytest.mark.parametrize("split", SIZES)
def test_answers_are_one_line_of_json_in_house_style(split):
    for row in ROWS[split]:
        for message in row["messages"][2::2]:
            body = json.loads(message["content"])
            assert list(body) == ["intent", "priority", "reply"]
            assert message["content"] == json.dumps(body), row["id"]
            assert (body["intent"] in INTENTS, body["priority"] in PRIORITIES) == (True, True)
            assert re.fullmatch(r"We will [^.!?]+\.", body["reply"]), row["id"]
            assert len(body["reply"].split()) <= 14, row["id"]


@pytest.mark.parametrize("split", SIZES)
def test_single_turn_replies_name_a_value_from_the_ticket(split):
    for row in ROWS[split]:
        if len(row["messages"]) == 3:
            ticket = row["messages"][1]["content"].lower()
            reply = json.loads(row["messages"][2]["content"])["reply"]
            names = re.findall(r"[A-Z][a-z]+|[A-Z]+-\d+|\$\d+|\d{5}", reply.removeprefix("We"))
            assert any(name.lower() in ticket for name in names), row["id"]


@pytest.mark.parametrize("split", SIZES)
def test_tickets_are_short(split):
    assert max(len(text.split()) for text, _ in turns(split)) <= 45


@pytest.mark.parametrize("split", SIZES)
def test_labels_are_balanced_and_independent(split):
    labels = [label for _, label in turns(split)]
    assert off_balance((label["intent"] for label in labels), INTENTS) == {}
    assert off_balance((label["priority"] for label in labels), PRIORITIES) == {}
    for intent in INTENTS:
        within = [label["priority"] for label in labels if label["intent"] == intent]
        assert off_balance(within, PRIORITIES) == {}, intent


@pytest.mark.parametrize("split", SIZES)
def test_priority_follows_from_the_cue_alone(split):
    carefully_typed = [(text, label) for text, label in turns(split) if text != text.lower()]
    assert len(carefully_typed) > SIZES[split] / 2
    for text, label in carefully_typed:
        assert cue_levels(text, POOLS[split]["cues"]) == {label["priority"]} - {"normal"}, text


def test_pools_are_rich_enough():
    for split, problems, cues in (("train", 14, 16), ("eval", 5, 5), ("test", 8, 8)):
        pools = POOLS[split]
        assert set(pools["problems"]) == INTENTS
        assert all(len(set(pool)) >= problems for pool in pools["problems"].values())
        assert all(len(set(pools["cues"][level])) >= cues for level in ("low", "high"))


def test_no_user_text_repeats():
    assert repeated(text for split in SIZES for text, _ in turns(split)) == []


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_splits_share_no_run_of_eight_words(a, b):
    assert shared_ngrams((t for t, _ in turns(a)), (t for t, _ in turns(b)), 8) == set()


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_splits_share_no_wording_and_no_slot_value(a, b):
    for part in ("problems", "cues", "neutral", "updates", "switches"):
        assert leaves(POOLS[a][part]) & leaves(POOLS[b][part]) == set(), part
    for slot in ("product", "item", "name"):
        assert leaves(POOLS[a]["slots"][slot]) & leaves(POOLS[b]["slots"][slot]) == set(), slot
    voices = [
        leaves({k: v["open"] + v["close"] for k, v in POOLS[s]["tones"].items()}) for s in (a, b)
    ]
    assert voices[0] & voices[1] == set()


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_texts_share_no_slot_value(a, b):
    def values(split: str) -> set[str]:
        slots = POOLS[split]["slots"]
        names = leaves({k: slots[k] for k in ("product", "name")} | {"m": slots["date"]["months"]})
        names |= {item.split()[0] for item in leaves(slots["item"])}
        text = " ".join(text.lower() for text, _ in turns(split))
        numbers = re.findall(r"\$\d+|\b\d{5}\b|inv-\d+|\be-\d+", text)
        return set(numbers) | (names & set(words(text)))

    ours, theirs = values(a), values(b)
    assert min(len(ours), len(theirs)) > 40
    assert ours & theirs == set()
