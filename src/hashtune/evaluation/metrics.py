"""Task metrics: an answer and its reference become scores in [0, 1], per item and field.

`json_fields` scores each declared field by exact match, `exact_match` compares whole texts without
case and runs of blanks, `token_f1` is the overlap of words. All are plain string work: no judge
model, the same score in every run.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Task

ANSWER = "answer"  # the one field of the metrics that score a whole text
_WORD = re.compile(r"\w+|[^\w\s]")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def score_task(
    task: Task, answers: Sequence[str], references: Sequence[str]
) -> dict[str, list[float]]:
    """Scores per field, each a list as long as `answers`, in the order of the items.

    Raises:
        InputError: `json_fields` without fields, or references that are no JSON object with all
            of them; the finding's field names the item.
        ValueError: unequal lengths.
    """
    pairs = list(zip(answers, references, strict=True))
    if task.metric == "json_fields":
        wanted = _reference_objects(task.fields, references)
        given = [parse_object(answer) or {} for answer in answers]
        return {
            field: [
                float(field in got and _same(got[field], want[field]))
                for got, want in zip(given, wanted, strict=True)
            ]
            for field in task.fields
        }
    score = _TEXT_METRICS[task.metric]
    return {ANSWER: [score(answer, reference) for answer, reference in pairs]}


def majority_scores(task: Task, references: Sequence[str]) -> dict[str, list[float]]:
    """Scores of always giving the most frequent reference (per field), the first one on a tie.

    Raises:
        InputError: as `score_task`.
    """
    if not references:
        return score_task(task, [], [])
    if task.metric == "json_fields":
        objects = _reference_objects(task.fields, references)
        constant = {
            field: json.loads(_most_frequent([json.dumps(item[field]) for item in objects]))
            for field in task.fields
        }
        answer = json.dumps(constant)
    else:
        answer = _most_frequent([normalise(reference) for reference in references])
    return score_task(task, [answer] * len(references), references)


def parse_object(text: str) -> dict[str, Any] | None:
    """The first complete JSON object in a text, or None.

    Text around it is ignored. Where an object breaks off, the search goes on behind the break, so
    that an inner object of a truncated answer never counts as the answer.
    """
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            start = text.find("{", max(start + 1, error.pos))
        except (ValueError, RecursionError):  # NaN, a number of thousands of digits, endless [[[
            return None
        else:
            return value if isinstance(value, dict) else None
    return None


def normalise(text: str) -> str:
    """Case folded, runs of blanks as one space, outer blanks removed."""
    return " ".join(text.split()).casefold()


def exact_match(answer: str, reference: str) -> float:
    """1.0 if both texts are equal once normalised."""
    return float(normalise(answer) == normalise(reference))


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over words and signs, each counted as often as it
    occurs; two empty texts agree."""
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return float(given == wanted)
    shared = (given & wanted).total()
    return 2 * shared / (given.total() + wanted.total())


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


def _most_frequent(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0]  # most_common keeps first-seen order on ties


def _reference_objects(fields: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    findings = []
    if not fields:
        findings.append(
            Finding(
                "no-fields",
                "the metric json_fields needs at least one field",
                field="data.task.fields",
                fix="name the fields to score, or choose another metric",
            )
        )
    objects = []
    for index, reference in enumerate(references):
        value = parse_object(reference) or {}
        missing = [field for field in fields if field not in value]
        if missing or not value:
            what = f"has no field {', '.join(missing)}" if value else "is no JSON object"
            where = f"test item {index}"
            findings.append(Finding("reference", f"the reference {what}", field=where))
        objects.append(value)
    if findings:
        raise InputError(findings)
    return objects


def _same(a: object, b: object) -> bool:
    """Equal as JSON values: 1 equals 1.0, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a == b


_TEXT_METRICS: dict[str, Callable[[str, str], float]] = {
    "exact_match": exact_match,
    "token_f1": token_f1,
}
