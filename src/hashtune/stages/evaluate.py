"""Stage evaluate: what did the task gain, on examples no training decision ever saw?

Reads build/base/manifest.json, build/train/adapter/, build/prepare/test.parquet and train.parquet
(for answers that were learned by heart); writes build/evaluate/{task.jsonl,scores.json} and
reports/evaluate.json. The adapter gets the prompts as the data has them.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, writers
from hashtune.evaluation.evidence import task_conditions
from hashtune.evaluation.kept import files_of, finish, kept_answers, speed
from hashtune.evaluation.likelihood import reference_likelihood
from hashtune.evaluation.memorisation import memorised
from hashtune.evaluation.noise_sides import task_noise
from hashtune.evaluation.tasks import task_items, task_rows, task_summary

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
    from hashtune.spec.schema import Spec

MANIFEST = Path("build/base/manifest.json")
ADAPTER = Path("build/train/adapter")
TRAIN = Path("build/prepare/train.parquet")
TEST = Path("build/prepare/test.parquet")
OUT = Path("build/evaluate")
CHUNK = 1000


def run() -> None:
    """Let the adapter answer the test items, and score it.

    Raises:
        InputError: an adapter that does not fit the base; test items that are broken.
    """
    spec = frame.read_spec("data", "evaluation", "determinism", "tokenizer")
    items = task_items(writers.read_parquet(TEST), file=TEST.as_posix())
    frame.say(f"the adapter answers {len(items)} test items")
    kept = kept_answers("evaluate", spec, model=[MANIFEST, *files_of(ADAPTER)])
    engine = _engine(spec)
    prompts = [item.prompt for item in items]
    started = time.monotonic()
    answers = engine.answers(
        prompts,
        max_new_tokens=spec.evaluation.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )
    seconds = time.monotonic() - started
    rows = task_rows(spec.data.task, items, prompts, answers, root=Path.cwd())
    noise = task_noise(
        *(engine, spec.data.task, items, prompts, rows),
        evaluation=spec.evaluation,
        root=Path.cwd(),
        progress=frame.progress,
    )
    summary = task_summary(spec.data.task, rows, root=Path.cwd())
    summary["references"] = reference_likelihood(
        *(engine, items, prompts, spec.evaluation.likelihood_items),
        progress=frame.progress,
        kept=kept,
    )
    summary["memorised"] = memorised(spec.data.task, items, rows, _train())
    report = {"task": summary, "noise_floor": {"task": noise}}
    conditions = task_conditions(spec.evaluation, writers.sha256_file(TEST))
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "task.jsonl", rows)
        writers.write_json(folder / "scores.json", report | {"task_conditions": conditions})
    frame.write_report("evaluate", report)
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


def _train() -> Iterator[dict[str, Any]]:
    for chunk in writers.parquet_chunks(TRAIN, CHUNK):
        yield from chunk


def _engine(spec: "Spec") -> "Engine":
    from hashtune.evaluation.engines.base import open_engine
    from hashtune.store.manifest import read_manifest

    return open_engine(read_manifest(MANIFEST), ADAPTER, spec, root=Path.cwd())


if __name__ == "__main__":
    frame.main("evaluate", run)
