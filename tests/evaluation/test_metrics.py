"""Scores of answers, by hand."""

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.metrics.objects import parse_object
from hashtune.evaluation.metrics.task import majority_scores, score_task
from hashtune.evaluation.metrics.text import token_f1
from hashtune.spec.schema import Task


def task(metric="json_fields", fields=("intent", "priority")):
    return Task(
        metric=metric,
        user_metric=None,
        fields=list(fields),
        json_schema=None,
        base_instruction=None,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure! {"a": {"b": "}"}} Done {"c": 2}', {"a": {"b": "}"}}),
        ('Use {curly} like {"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": {"b": 1}', None),  # cut off: the inner object is not the answer
        ('{"a": "text', None),
        ("[1, 2]", None),
        ("", None),
        ("{", None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": ' + "[" * 100_000, None),
        ('{"a": ' + "9" * 5_000 + "}", None),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_first_complete_object(text, expected):
    assert parse_object(text) == expected


def test_json_fields_score_each_field_alone():
    reference = '{"intent": "bug", "priority": "high", "reply": "x"}'
    answers = [
        reference,
        'Answer: {"priority": "high", "intent": "login"}',
        '{"intent": "bug"}',
        '{"intent": "Bug", "priority": ["high"]}',
        "bug, high",
    ]
    assert score_task(task(), answers, [reference] * 5) == {
        "intent": [1.0, 0.0, 1.0, 0.0, 0.0],
        "priority": [1.0, 1.0, 0.0, 0.0, 0.0],
    }


def test_json_values_compare_as_json():
    reference = '{"x": 1}'
    answers = ['{"x": 1.0}', '{"x": true}', '{"x": "1"}', '{"x": [1]}', '{"x": null}']
    assert score_task(task(fields=["x"]), answers, [reference] * 5)["x"] == [1.0, 0, 0, 0, 0]
    nested = '{"x": [{"y": true}]}'
    answers = ['{"x": [{"y": true}]}', '{"x": [{"y": 1}]}', '{"x": []}']
    assert score_task(task(fields=["x"]), answers, [nested] * 3)["x"] == [1.0, 0.0, 0.0]


def test_null_in_the_reference_needs_the_key_in_the_answer():
    answers = ['{"x": null}', "{}", "no"]
    assert score_task(task(fields=["x"]), answers, ['{"x": null}'] * 3)["x"] == [1.0, 0.0, 0.0]


def test_exact_match_ignores_case_and_blanks():
    answers = [" The  answer\n", "the answers", ""]
    scores = score_task(task("exact_match", []), answers, ["the answer", "the answer", " "])
    assert scores == {"answer": [1.0, 0.0, 1.0]}


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("the cat sat", "the cat", 0.8),  # 2 shared of 3 and 2 words
        ("cat cat", "cat", 2 / 3),
        ("", "", 1.0),
        ("", "cat", 0.0),
        ("dog", "cat", 0.0),
        ("Cat!", "cat !", 1.0),
    ],
)
def test_token_f1(answer, reference, expected):
    assert token_f1(answer, reference) == pytest.approx(expected)


def test_majority_per_field_takes_the_first_on_a_tie():
    references = [
        f'{{"intent": "{intent}", "priority": "{priority}"}}'
        for intent, priority in (("bug", "low"), ("bug", "high"), ("login", "high"), ("x", "low"))
    ]
    assert majority_scores(task(), references) == {
        "intent": [1.0, 1.0, 0.0, 0.0],
        "priority": [1.0, 0.0, 0.0, 1.0],
    }
    assert majority_scores(task("exact_match", []), ["b", "A", "a"]) == {"answer": [0.0, 1.0, 1.0]}
    assert majority_scores(task("exact_match", []), []) == {"answer": []}


def test_bad_references_are_all_named():
    references = ["no json", '{"intent": "bug"}', '{"intent": "a", "priority": "b"}']
    with pytest.raises(InputError) as caught:
        score_task(task(), ["", "", ""], references)
    assert [(f.field, f.message) for f in caught.value.findings] == [
        ("test item 0", "the reference is no JSON object"),
        ("test item 1", "the reference has no field priority"),
    ]
    with pytest.raises(InputError, match="no-fields"):
        score_task(task(fields=[]), [""], ["{}"])
    with pytest.raises(ValueError, match="shorter"):
        score_task(task("exact_match", []), ["a", "b"], ["a"])
