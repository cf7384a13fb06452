"""Stage evaluate: what did the task gain, on examples no training decision ever saw?

Reads build/base/manifest.json, build/train/adapter/ and build/prepare/test.parquet; writes
build/evaluate/{task.jsonl,scores.json} and reports/evaluate.json. The adapter gets the prompts as
the data has them.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, writers
from hashtune.evaluation.evidence import task_conditions
from hashtune.evaluation.kept import Kept, files_of, finish, kept_answers, speed
from hashtune.evaluation.tasks import TaskItem, task_items, task_rows, task_summary

if TYPE_CHECKING:
    from hashtune.spec.schema import Spec

MANIFEST = Path("build/base/manifest.json")
ADAPTER = Path("build/train/adapter")
TEST = Path("build/prepare/test.parquet")
OUT = Path("build/evaluate")


def run() -> None:
    """Let the adapter answer the test items, and score it.

    Raises:
        InputError: an adapter that does not fit the base; test items that are broken.
    """
    spec = frame.read_spec("data", "evaluation", "determinism", "tokenizer")
    items = task_items(writers.read_parquet(TEST), file=TEST.as_posix())
    frame.say(f"the adapter answers {len(items)} test items")
    kept = kept_answers("evaluate", spec, model=[MANIFEST, *files_of(ADAPTER)])
    rows, seconds = _answer(spec, items, kept)
    summary = task_summary(spec.data.task, rows)
    conditions = task_conditions(spec.evaluation, writers.sha256_file(TEST))
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "task.jsonl", rows)
        writers.write_json(folder / "scores.json", {"task": summary, "task_conditions": conditions})
    frame.write_report("evaluate", {"task": summary})
    tokens = sum(row["tokens"] for row in rows)
    frame.write_machine(
        "evaluate",
        speed(tokens, seconds, kept),
        belongs_to=OUT / "task.jsonl",
    )
    finish(kept)
    frame.closing_table(
        "the adapter scores", {**summary["scores"], "finished": summary["finished_share"]}
    )


def _answer(
    spec: "Spec", items: list[TaskItem], kept: Kept | None
) -> tuple[list[dict[str, Any]], float]:
    from hashtune.evaluation.generate import generate_answers
    from hashtune.evaluation.models import open_subject
    from hashtune.store.manifest import read_manifest

    subject = open_subject(
        read_manifest(MANIFEST),
        ADAPTER,
        spec.tokenizer,
        dtype=spec.evaluation.base_precision,
        threads=spec.determinism.threads,
        root=Path.cwd(),
    )
    prompts = [item.prompt for item in items]
    started = time.monotonic()
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
    seconds = time.monotonic() - started
    return task_rows(spec.data.task, items, prompts, answers), seconds


if __name__ == "__main__":
    frame.main("evaluate", run)
