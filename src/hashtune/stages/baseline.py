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
from hashtune.evaluation.likelihood import reference_likelihood
from hashtune.evaluation.noise_sides import suite_noise, task_noise
from hashtune.evaluation.suites import SuiteItem, load_suites
from hashtune.evaluation.tasks import TaskItem, base_prompt, task_items, task_rows, task_summary
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
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
    engine = _engine(spec)
    kept = kept_answers("baseline", spec, model=[MANIFEST])
    started = time.monotonic()
    prompts = [base_prompt(item.prompt, spec.data.task.base_instruction) for item in items]
    task = _task(spec, engine, items, prompts, kept)
    suites = _suites(spec, engine, suite_items, kept)
    seconds = time.monotonic() - started
    noise = {
        "task": task_noise(
            *(engine, spec.data.task, items, prompts, task),
            evaluation=spec.evaluation,
            root=Path.cwd(),
            progress=frame.progress,
        ),
        "suites": suite_noise(
            *(engine, suite_items, suites),
            evaluation=spec.evaluation,
            max_new_tokens=spec.regression.max_new_tokens,
            progress=frame.progress,
        ),
    }
    scores = {
        "task": task_summary(spec.data.task, task, root=Path.cwd())
        | {
            "references": reference_likelihood(
                *(engine, items, prompts, spec.evaluation.likelihood_items),
                progress=frame.progress,
                kept=kept,
            )
        },
        "suites": suite_summary(suites),
        "noise_floor": noise,
        "task_conditions": task_conditions(spec.evaluation, writers.sha256_file(TEST)),
        "suite_conditions": suite_conditions(spec.evaluation, spec.regression),
    }
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "task.jsonl", task)
        writers.write_jsonl(folder / "suites.jsonl", suites)
        writers.write_json(folder / "scores.json", scores)
    told = ("task", "suites", "noise_floor")
    frame.write_report("baseline", {key: scores[key] for key in told})
    tokens = sum(row["tokens"] for row in (*task, *suites))
    frame.write_machine(
        "baseline",
        speed(tokens, seconds, kept),
        belongs_to=OUT / "task.jsonl",
    )
    finish(kept)
    shown = {"suites": scores["suites"]["score"], **scores["task"]["scores"]}
    frame.closing_table("the base scores", shown)


def _engine(spec: "Spec") -> "Engine":
    from hashtune.evaluation.engines.base import open_engine
    from hashtune.store.manifest import read_manifest

    return open_engine(read_manifest(MANIFEST), None, spec, root=Path.cwd())


def _task(
    spec: "Spec",
    engine: "Engine",
    items: list[TaskItem],
    prompts: list[list[Message]],
    kept: Kept | None,
) -> list[dict[str, Any]]:
    answers = engine.answers(
        prompts,
        max_new_tokens=spec.evaluation.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )
    return task_rows(spec.data.task, items, prompts, answers, root=Path.cwd())


def _suites(
    spec: "Spec", engine: "Engine", items: list[SuiteItem], kept: Kept | None
) -> list[dict[str, Any]]:
    return answer_suites(
        engine,
        items,
        max_new_tokens=spec.regression.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )


if __name__ == "__main__":
    frame.main("baseline", run)
