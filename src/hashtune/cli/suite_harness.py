"""hashtune suite harness: tasks of lm-evaluation-harness on base and adapter, item by item.

Beside the pipeline and no part of the verdict: the tasks' data come from where the harness gets
them, and nothing pins them here.
"""

import argparse
from pathlib import Path

from hashtune import frame, writers
from hashtune.cli.base import require_manifest
from hashtune.evaluation.answering import suite_summary
from hashtune.spec.load import read_spec
from hashtune.store.manifest import read_manifest

OUT = Path("build/harness")


def run(arguments: argparse.Namespace) -> int:
    """Score both models, write their rows, print the means per task."""
    from hashtune.evaluation.harness import harness_rows, package
    from hashtune.evaluation.models import open_subject

    package()  # before anything is loaded
    manifest = read_manifest(require_manifest())
    spec = read_spec("tokenizer", "evaluation", "determinism")
    means: dict[str, dict[str, float]] = {}
    for name, adapter in (("base", None), ("adapter", Path(arguments.adapter))):
        subject = open_subject(
            manifest,
            adapter,
            spec.tokenizer,
            dtype=spec.evaluation.base_precision,
            threads=spec.determinism.threads,
            root=Path.cwd(),
        )
        rows = harness_rows(
            subject,
            arguments.tasks,
            batch_size=spec.evaluation.batch_size,
            progress=frame.progress,
            limit=arguments.limit,
            include=arguments.include,
        )
        writers.write_jsonl(OUT / f"{name}.jsonl", rows)
        slices = suite_summary(rows)["slices"]
        means[name] = {task: slices[task]["score"] for task in slices}
    for task, score in means["base"].items():
        print(f"{task}: base {score:.4g}, adapter {means['adapter'][task]:.4g}")
    print(f"items: {OUT}/base.jsonl and adapter.jsonl")
    return 0
