"""Memorisation: answers to test prompts that are, word for word, answers from training.

Such an answer counts when its own training prompts differ from the test prompt and the reference
differs from it: then the model gave back what it had seen, to a question that asked for something
else. A right answer that also occurs in training proves nothing. Where answers are labels or
numbers they repeat by nature, so nothing is counted there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hashtune import spelling
from hashtune.evaluation.metrics.task import LABEL_METRICS
from hashtune.evaluation.tasks import TaskItem, prompt_hash
from hashtune.records import Message
from hashtune.spec.schema import Task

CLOSED = (*LABEL_METRICS, "numeric_answer")
SHOWN = 20


def memorised(
    task: Task,
    items: Sequence[TaskItem],
    rows: Sequence[Mapping[str, Any]],
    train: Iterable[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """Count, share of the items, and of the first 20 the ids with that of a training conversation;
    None where answers form a closed set.

    Args:
        task: its metric says whether answers form a closed set.
        items: the test items.
        rows: of `tasks.task_rows`, one per item.
        train: rows of train.parquet, read once; only those that give a test answer are kept.
    """
    if task.metric in CLOSED:
        return None
    seen = _seen({row["answer"].strip() for row in rows} - {""}, train)
    found = []
    for item, row in zip(items, rows, strict=True):
        answer = row["answer"].strip()
        if answer not in seen or answer == item.reference.strip():
            continue
        sources = seen[answer]
        if prompt_hash(item.prompt) not in sources:
            found.append({"id": item.id, "train_id": min(sources.values())})
    share = round(len(found) / len(items), 6) if items else 0.0
    return {"examples": len(found), "share": share, "ids": found[:SHOWN]}


def _seen(wanted: set[str], train: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Of each answer that occurs in training: hash of a prompt it answers there to the row's id."""
    seen: dict[str, dict[str, str]] = {}
    for row in train:
        messages: list[Message] = spelling.loads(row["messages"])
        for place, message in enumerate(messages):
            text = message.get("content")
            if message["role"] != "assistant" or not isinstance(text, str):
                continue
            if (answer := text.strip()) in wanted:
                prompt = prompt_hash(messages[:place])
                seen.setdefault(answer, {}).setdefault(prompt, str(row["id"]))
    return seen
