"""Stage regress: what got worse?

Reads build/base/manifest.json, build/train/adapter/ and the suites; writes
build/regress/{suites.jsonl,scores.json} and reports/regress.json.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, writers
from hashtune.evaluation.answering import answer_suites, suite_summary
from hashtune.evaluation.evidence import suite_conditions
from hashtune.evaluation.kept import Kept, files_of, finish, kept_answers, speed
from hashtune.evaluation.suites import SuiteItem, load_suites

if TYPE_CHECKING:
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
    rows, seconds = _answer(spec, items, kept)
    summary = suite_summary(rows)
    conditions = suite_conditions(spec.evaluation, spec.regression)
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "suites.jsonl", rows)
        writers.write_json(
            folder / "scores.json", {"suites": summary, "suite_conditions": conditions}
        )
    frame.write_report("regress", {"suites": summary})
    tokens = sum(row["tokens"] for row in rows)
    frame.write_machine(
        "regress",
        speed(tokens, seconds, kept),
        belongs_to=OUT / "suites.jsonl",
    )
    finish(kept)
    slices = {name: entry["score"] for name, entry in summary["slices"].items()}
    frame.closing_table("the adapter scores", {"all suites": summary["score"], **slices})


def _answer(
    spec: "Spec", items: list[SuiteItem], kept: Kept | None
) -> tuple[list[dict[str, Any]], float]:
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
    started = time.monotonic()
    rows = answer_suites(
        subject,
        items,
        max_new_tokens=spec.regression.max_new_tokens,
        batch_size=spec.evaluation.batch_size,
        progress=frame.progress,
        kept=kept,
    )
    return rows, time.monotonic() - started


if __name__ == "__main__":
    frame.main("regress", run)
