"""The noise floor of task scores and of suite scores of one model (noise.py says what it is)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune.evaluation.answering import answer_suites
from hashtune.evaluation.noise import Row, noise_floor
from hashtune.evaluation.suites import SuiteItem
from hashtune.evaluation.tasks import TaskItem, task_rows
from hashtune.records import Message
from hashtune.spec.schema import Evaluation, Task

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
    from hashtune.evaluation.generate import Progress


def task_noise(
    engine: "Engine",
    task: Task,
    items: Sequence[TaskItem],
    prompts: Sequence[Sequence[Message]],
    rows: Sequence[Row],
    *,
    evaluation: Evaluation,
    root: Path,
    progress: "Progress",
) -> dict[str, Any]:
    """Of the rows that `tasks.task_rows` made of the answers to these prompts."""

    def again(indices: list[int], size: int) -> Sequence[Row]:
        asked = [prompts[index] for index in indices]
        answers = engine.answers(
            asked,
            max_new_tokens=evaluation.max_new_tokens,
            batch_size=size,
            progress=progress,
        )
        return task_rows(task, [items[index] for index in indices], asked, answers, root=root)

    return noise_floor(
        rows,
        evaluation.noise_items,
        compared=evaluation.batch_size,
        answer=again,
        scores=lambda row: row["scores"],
        output="answer",
    )


def suite_noise(
    engine: "Engine",
    items: Sequence[SuiteItem],
    rows: Sequence[Row],
    *,
    evaluation: Evaluation,
    max_new_tokens: int,
    progress: "Progress",
) -> dict[str, Any]:
    """Of the rows that `answering.answer_suites` made of these items."""

    def again(indices: list[int], size: int) -> Sequence[Row]:
        return answer_suites(
            engine,
            [items[index] for index in indices],
            max_new_tokens=max_new_tokens,
            batch_size=size,
            progress=progress,
        )

    return noise_floor(
        rows,
        evaluation.noise_items,
        compared=evaluation.batch_size,
        answer=again,
        scores=lambda row: {"score": row["score"]},
        output="output",
    )
