"""Stage baseline: what can the base do already?

Reads build/base/manifest.json, build/prepare/test.parquet and the suites; writes
build/baseline/{task.jsonl,suites.jsonl,scores.json} and reports/baseline.json. Independent of any
adapter, so one baseline serves all experiments. The base is told data.task.base_instruction, since
it never saw the task.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, writers
from hashtune.evaluation.answering import answer_suites, suite_summary
from hashtune.evaluation.evidence import suite_conditions, task_conditions
from hashtune.evaluation.kept import Kept, finish, kept_answers, speed
from hashtune.evaluation.suites import SuiteItem, load_suites
from hashtune.evaluation.tasks import TaskItem, base_prompt, task_items, task_rows, task_summary

if TYPE_CHECKING:
    from hashtune.evaluation.models import Subject
    from hashtune.spec.schema import Spec

MANIFEST = Path("build/base/manifest.json")
TEST = Path("build/prepare/test.parquet")
OUT = Path("build/baseline")


def run() -> None:
    """Let the base answer the test items and the suites, and score it.

    Raises:
        InputError: suites, test items, template or base that differ from their pins or are broken.
    """
    spec = frame.read_spec("data", "evaluation", "regression", "determinism", "tokenizer")
    suite_items = load_suites(
        spec.regression.suites, max_items=spec.regression.max_items, root=Path.cwd()
    )
    items = task_items(writers.read_parquet(TEST), file=TEST.as_posix())
    frame.say(f"the base answers {len(items)} test items and {len(suite_items)} suite items")
    subject = _subject(spec)
    kept = kept_answers("baseline", spec, model=[MANIFEST])
    started = time.monotonic()
    task = _task(spec, subject, items, kept)
    suites = _suites(spec, subject, suite_items, kept)
    seconds = time.monotonic() - started
    scores = {
        "task": task_summary(spec.data.task, task),
        "suites": suite_summary(suites),
        "task_conditions": task_conditions(spec.evaluation, writers.sha256_file(TEST)),
        "suite_conditions": suite_conditions(spec.evaluation, spec.regression),
    }
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "task.jsonl", task)
        writers.write_jsonl(folder / "suites.jsonl", suites)
        writers.write_json(folder / "scores.json", scores)
    frame.write_report("baseline", {"task": scores["task"], "suites": scores["suites"]})
    tokens = sum(row["tokens"] for row in (*task, *suites))
    frame.write_machine(
        "baseline",
        speed(tokens, seconds, kept),
        belongs_to=OUT / "task.jsonl",
    )
    finish(kept)
    shown = {"suites": scores["suites"]["score"], **scores["task"]["scores"]}
    frame.closing_table("the base scores", shown)


def _subject(spec: "Spec") -> "Subject":
    from hashtune.evaluation.models import open_subject
    from hashtune.store.manifest import read_manifest

    return open_subject(
        read_manifest(MANIFEST),
        None,
        spec.tokenizer,
        dtype=spec.evaluation.base_precision,
        threads=spec.determinism.threads,
        root=Path.cwd(),
    )


def _task(
    spec: "Spec", subject: "Subject", items: list[TaskItem], kept: Kept | None
) -> list[dict[str, Any]]:
    from hashtune.evaluation.generate import generate_answers

    prompts = [base_prompt(item.prompt, spec.data.task.base_instruction) for item in items]
    answers = generate_answers(
        subject.model,
        subject.template,
        prompts,
        stop_ids=subject.stop_ids,
        max_new_tokens=spec.evaluation.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )
    return task_rows(spec.data.task, items, prompts, answers)


def _suites(
    spec: "Spec", subject: "Subject", items: list[SuiteItem], kept: Kept | None
) -> list[dict[str, Any]]:
    return answer_suites(
        subject,
        items,
        max_new_tokens=spec.regression.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )


if __name__ == "__main__":
    frame.main("baseline", run)
