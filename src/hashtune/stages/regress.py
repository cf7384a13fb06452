"""Stage regress: what got worse?

Reads build/base/manifest.json, build/train/adapter/ and the suites; writes
build/regress/{suites.jsonl,scores.json} and reports/regress.json.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from hashtune import frame, writers
from hashtune.evaluation.answering import answer_suites, suite_summary
from hashtune.evaluation.evidence import suite_conditions
from hashtune.evaluation.kept import files_of, finish, kept_answers, speed
from hashtune.evaluation.noise_sides import suite_noise
from hashtune.evaluation.suites import load_suites

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
    from hashtune.spec.schema import Spec

MANIFEST = Path("build/base/manifest.json")
ADAPTER = Path("build/train/adapter")
OUT = Path("build/regress")


def run() -> None:
    """Let the adapter answer the suites that the base answered, and score it.

    Raises:
        InputError: an adapter that does not fit the base; suites that differ from their pins.
    """
    spec = frame.read_spec("evaluation", "regression", "determinism", "tokenizer")
    items = load_suites(
        spec.regression.suites, max_items=spec.regression.max_items, root=Path.cwd()
    )
    frame.say(f"the adapter answers {len(items)} suite items")
    kept = kept_answers("regress", spec, model=[MANIFEST, *files_of(ADAPTER)])
    engine = _engine(spec)
    started = time.monotonic()
    rows = answer_suites(
        engine,
        items,
        max_new_tokens=spec.regression.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )
    seconds = time.monotonic() - started
    noise = suite_noise(
        *(engine, items, rows),
        evaluation=spec.evaluation,
        max_new_tokens=spec.regression.max_new_tokens,
        progress=frame.progress,
    )
    summary = suite_summary(rows)
    report = {"suites": summary, "noise_floor": {"suites": noise}}
    conditions = suite_conditions(spec.evaluation, spec.regression)
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "suites.jsonl", rows)
        writers.write_json(folder / "scores.json", report | {"suite_conditions": conditions})
    frame.write_report("regress", report)
    tokens = sum(row["tokens"] for row in rows)
    frame.write_machine(
        "regress",
        speed(tokens, seconds, kept),
        belongs_to=OUT / "suites.jsonl",
    )
    finish(kept)
    slices = {name: entry["score"] for name, entry in summary["slices"].items()}
    frame.closing_table("the adapter scores", {"all suites": summary["score"], **slices})


def _engine(spec: "Spec") -> "Engine":
    from hashtune.evaluation.engines.base import open_engine
    from hashtune.store.manifest import read_manifest

    return open_engine(read_manifest(MANIFEST), ADAPTER, spec, root=Path.cwd())


if __name__ == "__main__":
    frame.main("regress", run)
