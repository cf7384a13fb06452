"""The frozen suites: counts, sound items, answer keys, patterns, near duplicates, pins."""

import operator
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hashtune import writers
from hashtune.evaluation.near_items import near_pairs, pattern, patterns
from hashtune.evaluation.suites import SuiteItem, load_suites
from hashtune.spec.schema import Suite

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("instructions", "formats", "refusals", "knowledge", "arithmetic", "multilingual")
SLICES = {*NAMES, "over_refusals"}
SUM = re.compile(r"What is (\d+) (\+|-|times|divided by) (\d+)\?")
SIGNS = {
    "+": operator.add,
    "-": operator.sub,
    "times": operator.mul,
    "divided by": operator.truediv,
}
RELATION = re.compile(r"What is (half of|double) (\d+)\?")


@pytest.fixture(scope="module")
def items() -> list[SuiteItem]:
    """All items of the default suites, through the pins of conf/."""
    conf = yaml.safe_load((ROOT / "conf/regression/default.yaml").read_text(encoding="utf-8"))
    suites = [Suite.model_validate(entry) for entry in conf["suites"]]
    assert tuple(suite.name for suite in suites) == NAMES
    return load_suites(suites, max_items=None, root=ROOT)


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a suite file."""
    return writers.read_jsonl(ROOT / f"data/suites/{name}.jsonl")


def unbalanced(items: Sequence[SuiteItem]) -> dict[str, Counter[int]]:
    """Slices in which the right answer does not stand equally often at each of four places."""
    places: dict[str, Counter[int]] = {}
    for item in items:
        if item.choices:
            counts = places.setdefault(item.slice, Counter({place: 0 for place in range(4)}))
            counts[item.answer] += 1
    return {
        name: counts
        for name, counts in places.items()
        if len(counts) != 4 or max(counts.values()) - min(counts.values()) > 1
    }


def worked_out(question: str) -> float | None:
    """The answer to a sum, or None for another question."""
    if found := SUM.fullmatch(question):
        return float(SIGNS[found[2]](int(found[1]), int(found[3])))
    if found := RELATION.fullmatch(question):
        return int(found[2]) * (0.5 if found[1] == "half of" else 2.0)
    return None


def wrong_keys(items: Sequence[SuiteItem]) -> list[str]:
    """Sums whose key is not what they give, or whose result is also a wrong choice."""
    wrong = []
    for item in items:
        result = worked_out(item.prompt)
        if result is None or not item.choices:
            continue
        right = [place for place, choice in enumerate(item.choices) if _last(choice) == result]
        wrong += [item.id] if right != [item.answer] else []
    return wrong


def _last(choice: str) -> float:
    return float(re.findall(r"\d+", choice)[-1])


def test_at_least_300_items_100_of_them_generated(items):
    kinds = Counter(item.kind for item in items)
    assert kinds == {"generated": 140, "choice": 231}
    assert {item.slice for item in items} == SLICES
    assert min(Counter(item.slice for item in items).values()) >= 18


def test_every_item_says_why_it_is_there(items):
    short = [
        item.id for item in items if len(item.rationale) < 30 or " loss " not in item.rationale
    ]
    assert short == []


def test_at_least_25_kinds_of_rule_are_used(items):
    used = Counter(str(rule["kind"]) for item in items for rule in item.rules)
    assert len(used) >= 25
    told = {
        str(rule["kind"])
        for item in items
        if item.slice in ("instructions", "formats")
        for rule in item.rules
    }
    assert len(told) >= 25


def test_at_most_8_items_come_from_one_pattern(items):
    assert [(name, count) for name, count in patterns(items).items() if count > 8] == []


def test_no_item_asks_nearly_what_another_one_asks(items):
    assert [(a.id, b.id) for a, b, _ in near_pairs(items)] == []


def test_choices_are_four_and_the_right_place_is_balanced(items):
    assert {len(item.choices) for item in items if item.choices} == {4}
    assert unbalanced(items) == {}


def test_every_sum_has_its_result_as_key(items):
    sums = [item for item in items if item.choices and worked_out(item.prompt) is not None]
    assert len(sums) == 31
    assert wrong_keys(sums) == []


def test_refusals_and_answers_are_told_apart_by_their_first_rule(items):
    first = {
        slice_: {str(item.rules[0]["kind"]) for item in items if item.slice == slice_}
        for slice_ in ("refusals", "over_refusals")
    }
    assert first == {"refusals": {"refusal"}, "over_refusals": {"no_refusal"}}


def test_prompts_and_answers_are_short(items):
    """Both models answer all of them on two slow cores."""
    assert max(len(item.prompt) for item in items) <= 120
    assert max(len(choice) for item in items for choice in item.choices) <= 60


@pytest.mark.parametrize("name", NAMES)
def test_files_are_canonical_and_ids_count_up(name):
    text = (ROOT / f"data/suites/{name}.jsonl").read_text(encoding="utf-8")
    assert text == "".join(writers.canonical_json(row, indent=None) for row in rows(name))
    numbers: dict[str, int] = {}
    for row in rows(name):
        prefix, number = row["id"].rsplit("-", 1)
        numbers[prefix] = numbers.get(prefix, 0) + 1
        assert number == f"{numbers[prefix]:03d}"


def make(**fields: Any) -> SuiteItem:
    return SuiteItem(**{"id": "x", "suite": "s", "slice": "a", "prompt": "?"} | fields)


def test_planted_faults_are_seen():
    frame = [make(id=str(n), prompt=f"What is the capital of place {n}?") for n in range(9)]
    assert patterns(frame).most_common(1) == [("a: what is the capital", 9)]
    assert pattern(make(prompt="What is 20 minus 8?")) == "a: what is # minus"
    pair = [
        make(prompt="How many legs does a dog have?"),
        make(prompt="How many legs does a dog have"),
    ]
    ((_, _, found),) = near_pairs(pair)
    assert found == pytest.approx(6 / 7)  # 7 pairs of neighbours with the question mark, 6 without
    assert near_pairs([make(prompt="What is 2 + 3?"), make(prompt="What is 2 + 4?")]) == []
    keys = {"prompt": "What is 2 + 3?", "choices": ("2 + 3 = 4", "2 + 3 = 5")}
    assert wrong_keys([make(**keys, answer=1)]) == []
    assert wrong_keys([make(**keys, answer=0)]) == ["x"]
    both = {"prompt": "What is half of 10?", "choices": ("5", "Half is 5."), "answer": 0}
    assert wrong_keys([make(**both)]) == ["x"]
    one_place = [make(choices=tuple("abcd"), answer=0) for _ in range(4)]
    assert unbalanced(one_place) == {"a": Counter({0: 4, 1: 0, 2: 0, 3: 0})}
