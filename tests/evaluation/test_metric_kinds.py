"""Numbers, labels, schemas and the metrics of optional packages, by hand."""

import sys
from decimal import Decimal
from types import ModuleType, SimpleNamespace

import pytest

from hashtune.errors import InputError
from hashtune.evaluation.metrics.labels import macro_f1, outside_share
from hashtune.evaluation.metrics.numeric import last_number, numeric_answer
from hashtune.evaluation.metrics.objects import fits
from hashtune.evaluation.metrics.packages import package_metric
from hashtune.evaluation.metrics.task import majority_scores, score_task
from hashtune.evaluation.metrics.text import normalised_match
from hashtune.evaluation.tasks import task_summary
from hashtune.spec import metric_packages
from hashtune.spec.schema import Task

NUMBERS = [
    ("#### 18", "18"),
    ("She has 3 + 4 = 7 eggs.\n#### 7", "7"),
    ("#### 5 apples, of 9", "5"),  # behind the mark comes the answer
    ("#### none, so 6", "6"),
    ("12 then ####", "12"),  # a mark with nothing behind it
    ("The answer is 1,234,567.", "1234567"),
    ("It costs $1,234.50 in all", "1234.50"),
    ("$0.50", "0.5"),
    (".5", "0.5"),
    ("-3", "-3"),
    ("the balance is -$40", "-40"),
    ("a loss of \u2212 7", "-7"),  # the minus sign of typesetters
    ("+7", "7"),
    ("10-4", "4"),  # subtraction, not minus four
    ("10 - 4", "4"),
    ("10 -4", "4"),
    ("10 \u2212 4", "4"),
    ("5 - 9 = -4", "-4"),
    ("5\n-4", "-4"),
    ("In all:\n- 18 eggs", "18"),  # an item of a list
    ("f(2)-3", "3"),
    ("**42**", "42"),
    (r"\boxed{42}", "42"),
    ("42%", "42"),
    ("1,2345", "2345"),  # no group of thousands
    ("1,234,56", "56"),
    ("2,3 and 4", "4"),
    ("18.", "18"),
    ("3.0", "3"),
    ("007", "7"),
    ("no number", None),
    ("", None),
    ("####", None),
    ("9" * 301, None),
]


@pytest.mark.parametrize(("text", "number"), NUMBERS)
def test_the_number_a_text_ends_in(text, number):
    assert last_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_beyond_a_double_is_no_answer(number):
    """Planted: a model writes one, and its label could not be written in JSON again."""
    answer = f'{{"x": {number}}}'
    own = task("json_fields", ["x"])
    assert score_task(own, [answer], ['{"x": 1}']) == {"x": [0.0]}
    summary = task_summary(own, [row(answer, '{"x": 1}', "x")])
    assert (summary["valid_json_share"], summary["labels"]["x"]["outside_share"]) == (0.0, 1.0)


def test_equal_numbers_are_right_however_written():
    assert numeric_answer("so it is $1,200.00.", "#### 1200") == 1.0
    assert numeric_answer("1201", "#### 1200") == 0.0
    assert numeric_answer("I do not know", "#### 1200") == 0.0
    assert numeric_answer("none", "none") == 0.0
    assert numeric_answer("0.1", "0.10") == 1.0


def task(metric, fields=()):
    return Task(
        metric=metric,
        user_metric=None,
        fields=list(fields),
        json_schema=None,
        base_instruction=None,
    )


def test_a_reference_without_a_number_is_named():
    with pytest.raises(InputError) as caught:
        score_task(task("numeric_answer"), ["1", "2"], ["#### 1", "two"])
    assert [f.field for f in caught.value.findings] == ["test item 1"]


def test_the_most_frequent_number_is_the_constant():
    references = ["1 + 1\n#### 2", "4 / 2 is 2.\n#### 2", "#### 3"]
    assert majority_scores(task("numeric_answer"), references) == {"answer": [1.0, 1.0, 0.0]}


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("The Eiffel Tower.", "eiffel  tower", 1.0),
        ("An apple, a day", "apple day", 1.0),
        ("theatre", "atre", 0.0),  # no article inside a word
        ("the", "", 1.0),
        ("Paris, France", "Paris", 0.0),
    ],
)
def test_normalised_match(answer, reference, score):
    assert normalised_match(answer, reference) == score


def test_macro_f1_by_hand():
    """a: TP 1, FP 1, FN 1: 0.5. b: TP 1, FP 0, FN 1: 2/3. c: TP 0: 0. Mean 7/18."""
    answers, references = ["a", "x", "a", "b", "x"], ["a", "a", "b", "b", "c"]
    assert macro_f1(answers, references) == pytest.approx(7 / 18)
    assert outside_share(answers, references) == 0.4
    assert macro_f1(references, references) == 1.0
    for measure in (macro_f1, lambda a, _: outside_share(a, [])):
        with pytest.raises(ValueError, match="at least one"):
            measure([], [])


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({"a": "x", "n": 2}, True),
        ({"a": "y", "n": 2.5}, True),
        ({"a": "x", "n": "2"}, False),
        ({"a": "x", "n": True}, False),
        ({"a": "x"}, False),
        ({"a": "x", "n": 2, "more": 1}, False),
        (None, False),
    ],
)
def test_an_answer_fits_its_schema(value, holds):
    assert fits(value, {"a": "x", "n": 1}, ["a", "n"]) is holds


def row(answer, reference, field="answer"):
    return {
        "answer": answer,
        "reference": reference,
        "finished": True,
        "tokens": len(answer),
        "scores": {field: 1.0},
        "majority": {field: 0.0},
    }


def test_the_summary_of_labels():
    summary = task_summary(task("exact_match"), [row("A", "a"), row("?", "b ")])
    assert summary["labels"]["answer"] == {"labels": 2, "macro_f1": 0.5, "outside_share": 0.5}
    assert summary["tokens_mean"] == 1.0
    rows = [
        row('{"x": 1}', '{"x": 1}', "x"),
        row('{"x": "1"}', '{"x": 2}', "x"),
        row("", "{}", "x"),
    ]
    rows[2]["reference"] = '{"x": 1}'
    summary = task_summary(task("json_fields", ["x"]), rows)
    assert (summary["valid_json_share"], summary["valid_schema_share"]) == (0.666667, 0.333333)
    # 1: TP 1, FN 1: 2/3; 2: never given: 0
    expected = {"labels": 2, "macro_f1": 0.333333, "outside_share": 0.666667}
    assert summary["labels"]["x"] == expected
    assert "labels" not in task_summary(task("token_f1"), [row("a", "a")])


@pytest.mark.parametrize("name", ["rouge_l", "bleu", "chrf"])
def test_a_package_of_another_version_is_refused(name, monkeypatch):
    monkeypatch.setattr(metric_packages.metadata, "version", lambda _: "0.0.1")
    with pytest.raises(InputError, match="metric-package") as caught:
        score_task(task(name), ["a"], ["a"])
    (finding,) = caught.value.findings
    assert finding.fix == f"pip install {'=='.join(metric_packages.PACKAGES[name])}"
    assert "0.0.1 is installed" in finding.message


def test_packages_are_asked_with_the_reference_in_its_place(monkeypatch):
    """Stand-ins that tell what they were given; bench/statistics_peers.py asks the real ones."""
    versions = dict(metric_packages.PACKAGES.values())
    monkeypatch.setattr(metric_packages.metadata, "version", versions.__getitem__)
    bleu, rouge, scorer = (ModuleType(n) for n in ("sacrebleu", "rouge_score", "rouge_scorer"))
    bleu.sentence_bleu = lambda answer, references: SimpleNamespace(score=10.0 * len(answer))
    bleu.sentence_chrf = lambda answer, references: SimpleNamespace(score=100.0 + len(references))
    scorer.RougeScorer = lambda kinds: SimpleNamespace(
        score=lambda target, prediction: {kinds[0]: SimpleNamespace(fmeasure=len(target) / 10)}
    )
    for name, module in (("sacrebleu", bleu), ("rouge_score", rouge)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", scorer)
    assert package_metric("bleu")("abc", "x") == pytest.approx(0.3)
    assert package_metric("chrf")("abc", "x") == 1.0  # rounding of the package stays within 1
    assert package_metric("rouge_l")("abc", "x") == 0.1
