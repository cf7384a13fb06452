"""The declared metric of a task: scores per item and field, and those of a constant answer.

`json_fields` scores each declared field by exact match; every other metric scores the whole text.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.evaluation.metrics.numeric import last_number, numeric_answer
from hashtune.evaluation.metrics.objects import parse_object, reference_objects, same
from hashtune.evaluation.metrics.packages import package_metric
from hashtune.evaluation.metrics.text import (
    bare,
    exact_match,
    normalise,
    normalised_match,
    token_f1,
)
from hashtune.evaluation.metrics.user import user_scores
from hashtune.spec.metric_packages import PACKAGES
from hashtune.spec.schema import Task

ANSWER = "answer"  # the one field of the metrics that score a whole text
HERE = Path()
LABEL_METRICS = ("exact_match", "normalised_match")  # their answers may be labels of a closed set


def score_task(
    task: Task, answers: Sequence[str], references: Sequence[str], *, root: Path = HERE
) -> dict[str, list[float]]:
    """Scores per field, each a list as long as `answers`, in the order of the items. `root` of the
    project is where a user's metric lies.

    Raises:
        InputError: `json_fields` without fields, or references that are no JSON object with all
            of them, or without a number for `numeric_answer`; the finding's field names the item.
            A metric whose package is not there; as `user.user_scores`.
        ValueError: unequal lengths.
    """
    pairs = list(zip(answers, references, strict=True))
    if task.metric == "json_fields":
        wanted = reference_objects(task.fields, references)
        given = [parse_object(answer) or {} for answer in answers]
        return {
            field: [
                float(field in got and same(got[field], want[field]))
                for got, want in zip(given, wanted, strict=True)
            ]
            for field in task.fields
        }
    if task.user_metric is not None:
        return {ANSWER: user_scores(task.user_metric, answers, references, root=root)}
    if task.metric == "numeric_answer":
        _refuse_without_number(references)
    score = _text_metric(task.metric)
    return {ANSWER: [score(answer, reference) for answer, reference in pairs]}


def majority_scores(
    task: Task, references: Sequence[str], *, root: Path = HERE
) -> dict[str, list[float]]:
    """Scores of always giving the most frequent reference (per field), the first one on a tie.

    Raises:
        InputError: as `score_task`.
    """
    if not references:
        return score_task(task, [], [], root=root)
    if task.metric == "json_fields":
        objects = reference_objects(task.fields, references)
        constant = {
            field: json.loads(_most_frequent([json.dumps(item[field]) for item in objects]))
            for field in task.fields
        }
        answer = json.dumps(constant)
    else:
        answer = _most_frequent([plain(task, reference) for reference in references])
    return score_task(task, [answer] * len(references), references, root=root)


def plain(task: Task, text: str) -> str:
    """A text as its metric compares it: what two right answers share. Whole for a user's."""
    if task.metric == "user":
        return text
    if task.metric == "numeric_answer":
        return str(last_number(text))
    return bare(text) if task.metric == "normalised_match" else normalise(text)


def _most_frequent(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0]  # most_common keeps first-seen order on ties


def _refuse_without_number(references: Sequence[str]) -> None:
    findings = [
        Finding("reference", "the reference has no number", field=f"test item {index}")
        for index, reference in enumerate(references)
        if last_number(reference) is None
    ]
    if findings:
        raise InputError(findings)


def _text_metric(name: str) -> Callable[[str, str], float]:
    return package_metric(name) if name in PACKAGES else _TEXT_METRICS[name]


_TEXT_METRICS: dict[str, Callable[[str, str], float]] = {
    "exact_match": exact_match,
    "normalised_match": normalised_match,
    "numeric_answer": numeric_answer,
    "token_f1": token_f1,
}
