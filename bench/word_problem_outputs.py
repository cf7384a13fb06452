"""Answers of the demo's base to the first questions of GSM8K's test set, for a hand count.

    python bench/word_problem_outputs.py GSM8K_TEST.jsonl OUT.jsonl [--items 50]

Greedy, fp32, one thread, batches of 10 in file order, at most 160 new tokens; the question alone
as the user's message. Each line of OUT.jsonl has the sha256 of the question, the number behind
the reference's "####", the output and whether it reached a stop. No metric is run here: the
verdicts of tests/evaluation/gsm8k_outputs.jsonl were read by eye before it was.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from hashtune.evaluation.generate import Answer, generate_answers
from hashtune.evaluation.models import Subject, open_subject
from hashtune.spec.load import read_spec
from hashtune.store.loader import resolve
from hashtune.store.manifest import Source

ROOT = Path(__file__).resolve().parent.parent
NEW_TOKENS, BATCH = 160, 10


def load() -> Subject:
    """The base of this checkout's params.yaml, from the store or its wheel."""
    spec = read_spec("base_model", "tokenizer", path=ROOT / "params.yaml")
    source = Source(
        kind=spec.base_model.source,
        repo=spec.base_model.repo,
        revision=spec.base_model.revision,
        file=spec.base_model.file,
        sha256=spec.base_model.sha256,
    )
    manifest = resolve(source, name=spec.base_model.name)
    return open_subject(manifest, None, spec.tokenizer, dtype="fp32", threads=1, root=ROOT)


def answers(subject: Subject, questions: list[str]) -> list[Answer]:
    """One greedy answer per question."""
    return generate_answers(
        subject.model,
        subject.template,
        [[{"role": "user", "content": question}] for question in questions],
        stop_ids=subject.stop_ids,
        max_new_tokens=NEW_TOKENS,
        batch_size=BATCH,
        progress=lambda items, **_: items,
    )


def main() -> None:
    """Write the answers, batch after batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--items", type=int, default=50)
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.items]
    rows = [json.loads(line) for line in lines]
    subject = load()
    with arguments.out.open("w", encoding="utf-8") as stream:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            given = answers(subject, [row["question"] for row in batch])
            for row, answer in zip(batch, given, strict=True):
                made = {
                    "question_sha256": hashlib.sha256(row["question"].encode()).hexdigest(),
                    "reference": row["answer"].rpartition("#### ")[2],
                    "output": answer.text,
                    "finished": answer.finished,
                }
                stream.write(json.dumps(made, ensure_ascii=False) + "\n")
            stream.flush()
            print(f"{start + len(batch)} of {len(rows)}", flush=True)


if __name__ == "__main__":
    main()
