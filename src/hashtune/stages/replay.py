"""Stage replay: what would the base itself answer to general prompts?

Reads build/base/manifest.json and the prompts of data.replay; writes build/replay/answers.jsonl,
build/replay/ledger.jsonl and reports/replay.json. Mixed into training, these answers keep a narrow
task from eating the rest. Without prompts both files are empty and no model is loaded. 300 prompts
of 96 tokens at most take some minutes on two CPU cores.
"""

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import frame, writers
from hashtune.evaluation.kept import Kept, finish, kept_answers, speed
from hashtune.evaluation.replay import BLANK, UNFINISHED, ReplayPrompt, keep_answers, load_prompts
from hashtune.records import Dropped

if TYPE_CHECKING:
    from hashtune.evaluation.generate import Answer
    from hashtune.spec.schema import Spec

MANIFEST = Path("build/base/manifest.json")
OUT = Path("build/replay")


def run() -> None:
    """Let the base answer the replay prompts and keep what it finished.

    Raises:
        InputError: prompts, template or base that differ from their pins or are broken.
    """
    spec = frame.read_spec("data", "evaluation", "determinism", "tokenizer")
    if spec.data.replay.uri is None:
        _write([], [], prompts=0)
        return
    prompts = load_prompts(spec.data.replay.uri, sha256=spec.data.replay.sha256, root=Path.cwd())
    prompts = prompts[: spec.data.replay.max_prompts]
    frame.say(f"the base answers {len(prompts)} prompts")
    batches = kept_answers("replay", spec, model=[MANIFEST])
    answers, seconds = _answer(spec, prompts, batches)
    kept, dropped = keep_answers(prompts, answers)
    _write(kept, dropped, prompts=len(prompts))
    tokens = sum(answer.tokens for answer in answers)
    frame.write_machine(
        "replay",
        speed(tokens, seconds, batches),
        belongs_to=OUT / "answers.jsonl",
    )
    finish(batches)


def _answer(
    spec: "Spec", prompts: list[ReplayPrompt], batches: Kept | None
) -> "tuple[list[Answer], float]":
    from hashtune.evaluation.generate import generate_answers
    from hashtune.evaluation.models import open_subject
    from hashtune.store.manifest import read_manifest

    subject = open_subject(
        read_manifest(MANIFEST),
        None,
        spec.tokenizer,
        dtype=spec.evaluation.base_precision,
        threads=spec.determinism.threads,
        root=Path.cwd(),
    )
    started = time.monotonic()
    answers = generate_answers(
        subject.model,
        subject.template,
        [prompt.messages for prompt in prompts],
        stop_ids=subject.stop_ids,
        max_new_tokens=spec.data.replay.max_new_tokens,
        batch_size=spec.data.replay.batch_size,
        progress=frame.progress,
        kept=batches,
    )
    return answers, time.monotonic() - started


def _write(kept: list[dict[str, Any]], dropped: list[Dropped], *, prompts: int) -> None:
    with writers.staged_directory(OUT) as folder:
        writers.write_jsonl(folder / "answers.jsonl", kept)
        writers.write_jsonl(folder / "ledger.jsonl", [asdict(line) for line in dropped])
    reasons = Counter(line.reason for line in dropped)
    by_reason = {reason: reasons[reason] for reason in (UNFINISHED, BLANK)}
    frame.write_report("replay", {"prompts": prompts, "kept": len(kept), "dropped": by_reason})
    frame.closing_table("replayed", {"prompts": prompts, "kept": len(kept), **by_reason})


if __name__ == "__main__":
    frame.main("replay", run)
