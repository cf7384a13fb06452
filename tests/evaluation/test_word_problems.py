"""Numeric answers against a hand count: 50 outputs as models write them.

The outputs and the judgement were written by hand, apart from the code: an output is right when
the answer that it ends in is the reference's number. What the rule is known to get wrong stands in
a test of its own.
"""

import json
from pathlib import Path

import pytest

from hashtune.evaluation.metrics import numeric
from hashtune.evaluation.metrics.task import score_task
from hashtune.spec.schema import Task

FILE = Path(__file__).with_name("word_problem_outputs.jsonl")
RIGHT = 32  # counted by hand
TASK = Task(
    metric="numeric_answer", user_metric=None, fields=[], json_schema=None, base_instruction=None
)


def rows():
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def scores(found):
    outputs, references = [row["output"] for row in found], [row["reference"] for row in found]
    return score_task(TASK, outputs, references)["answer"]


def test_the_score_is_the_hand_count():
    found = rows()
    assert len(found) == 50
    wrongly = [
        row["id"]
        for row, score in zip(found, scores(found), strict=True)
        if bool(score) != row["right"]
    ]
    assert wrongly == []
    assert sum(scores(found)) == RIGHT == sum(row["right"] for row in found)


def test_a_rule_without_the_mark_is_seen(monkeypatch):
    """Planted: the number behind "####" no longer comes first, and talk behind it counts."""
    monkeypatch.setattr(numeric, "MARK", "no such mark")
    assert sum(scores(rows())) < RIGHT


@pytest.mark.parametrize(
    ("output", "reference"),
    [
        ("Anna is seven years old.", "#### 7"),
        ("One of two, so 1/2", "#### 0.5"),
        ("She earns 18 dollars in 7 days.", "#### 18"),
        ("It costs 100 000 dollars.", "#### 100000"),
    ],
)
def test_known_limits(output, reference):
    """Whoever reads these would call them right; the rule does not."""
    assert numeric.numeric_answer(output, reference) == 0.0
