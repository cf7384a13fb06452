"""The task's test items: what is asked, what is expected, what the untuned base is told besides.

The base never saw the task, so a bare prompt would measure only that it does not know the format.
`data.task.base_instruction` tells it; the adapter gets the prompt as the data has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hashtune import spelling
from hashtune.errors import Finding, InputError
from hashtune.evaluation.metrics.labels import macro_f1, outside_share
from hashtune.evaluation.metrics.objects import fits, parse_object
from hashtune.evaluation.metrics.task import (
    ANSWER,
    HERE,
    LABEL_METRICS,
    majority_scores,
    plain,
    score_task,
)
from hashtune.evaluation.metrics.valid import validator
from hashtune.records import Message
from hashtune.spec.schema import Task
from hashtune.writers import canonical_json, sha256_bytes

if TYPE_CHECKING:
    from hashtune.evaluation.generate import Answer


@dataclass(frozen=True, slots=True)
class TaskItem:
    """A test conversation: the messages before the last assistant turn, and that turn's text."""

    id: str
    prompt: list[Message]
    reference: str


def task_items(rows: Sequence[Mapping[str, Any]], *, file: str) -> list[TaskItem]:
    """Test items of the rows of test.parquet (columns id and messages, see records).

    Raises:
        InputError: no rows; a conversation without an assistant turn that has a prompt and a text.
    """
    items: list[TaskItem] = []
    findings: list[Finding] = []
    for number, row in enumerate(rows, start=1):
        messages: list[Message] = spelling.loads(row["messages"])
        last = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=0)
        content = messages[last].get("content") if messages else None
        if last == 0 or not isinstance(content, str) or not content.strip():
            message = "has no assistant turn with a prompt before it and a text"
            findings.append(Finding("test-item", f"{row['id']} {message}", file=file, line=number))
            continue
        items.append(TaskItem(str(row["id"]), messages[:last], content))
    if not rows:
        findings.append(Finding("empty", "has no test items", file=file))
    if findings:
        raise InputError(findings)
    return items


def base_prompt(prompt: Sequence[Message], instruction: str | None) -> list[Message]:
    """The prompt with `instruction` as its system message, in place of any other; as it is when
    there is no instruction."""
    if instruction is None:
        return list(prompt)
    rest = [message for message in prompt if message["role"] != "system"]
    return [{"role": "system", "content": instruction}, *rest]


def task_rows(
    task: Task,
    items: Sequence[TaskItem],
    prompts: Sequence[Sequence[Message]],
    answers: "Sequence[Answer]",
    *,
    root: Path = HERE,
) -> list[dict[str, Any]]:
    """One row per item for task.jsonl: id, answer, finished, tokens, scores per field, majority
    scores per field, reference, and the hash of the prompt that was given.

    Raises:
        InputError: as `metrics.score_task`.
    """
    references = [item.reference for item in items]
    scores = score_task(task, [answer.text for answer in answers], references, root=root)
    majority = majority_scores(task, references, root=root)
    return [
        {
            "id": item.id,
            "prompt": prompt_hash(prompt),
            "answer": answer.text,
            "finished": answer.finished,
            "tokens": answer.tokens,
            "scores": {field: values[index] for field, values in scores.items()},
            "majority": {field: values[index] for field, values in majority.items()},
            "reference": item.reference,
        }
        for index, (item, prompt, answer) in enumerate(zip(items, prompts, answers, strict=True))
    ]


def prompt_hash(prompt: Sequence[Message]) -> str:
    """First 16 hex digits of the sha256 of the canonical messages."""
    return sha256_bytes(canonical_json(list(prompt), indent=None).encode("utf-8"))[:16]


def task_summary(
    task: Task, rows: Sequence[Mapping[str, Any]], *, root: Path = HERE
) -> dict[str, Any]:
    """Means over the rows of `task_rows`: score and majority score per field, share of answers
    that reached a stop, their tokens; macro-F1 and the share of answers outside of the references'
    labels where answers may be labels; for json_fields the share that holds a JSON object, and
    that has the reference's keys and types; with a JSON Schema the share that it allows."""
    summary: dict[str, Any] = {
        "items": len(rows),
        "finished_share": _mean([row["finished"] for row in rows]),
        "tokens_mean": _mean([row["tokens"] for row in rows]),
        "scores": _means(rows, "scores"),
        "majority": _means(rows, "majority"),
    }
    if (valid_by_schema := validator(task, root=root)) is not None:
        summary["json_schema_share"] = _mean([valid_by_schema(row["answer"]) for row in rows])
    if task.metric == "json_fields":
        given = [parse_object(row["answer"]) for row in rows]
        wanted = [parse_object(row["reference"]) or {} for row in rows]
        valid = [fits(a, b, task.fields) for a, b in zip(given, wanted, strict=True)]
        summary["valid_json_share"] = _mean([value is not None for value in given])
        summary["valid_schema_share"] = _mean(valid)
        summary["labels"] = {
            field: _labels([_label(a, field) for a in given], [_label(b, field) for b in wanted])
            for field in task.fields
        }
    if task.metric in LABEL_METRICS:
        answers = [plain(task, row["answer"]) for row in rows]
        summary["labels"] = {
            ANSWER: _labels(answers, [plain(task, row["reference"]) for row in rows])
        }
    return summary


def _label(value: Mapping[str, Any] | None, field: str) -> str:
    """The field as canonical JSON; nothing, which is no label, where it is not there."""
    return canonical_json(value[field], indent=None) if value and field in value else ""


def _labels(answers: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    return {
        "labels": len(set(references)),
        "macro_f1": round(macro_f1(answers, references), 6),
        "outside_share": round(outside_share(answers, references), 6),
    }


def _mean(values: Sequence[float]) -> float:
    return round(fmean(map(float, values)), 6)


def _means(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    return {field: _mean([row[key][field] for row in rows]) for field in sorted(rows[0][key])}
