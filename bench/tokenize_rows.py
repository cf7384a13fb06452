"""Rows per second of tokenization with all proofs, beside TRL's where TRL is installed.

    python bench/tokenize_rows.py ROWS.jsonl [--limit N] [--rounds R]

ROWS.jsonl has "question" and "answer" per line (GSM8K); the tokenizer and template are those of the
synthetic base. One process each, in turn, round after round; the medians are compared. CPU time is
given beside wall time, since other work on the machine stretches the latter. Ours parses JSON,
checks, derives every mask twice and builds the columns that the stage writes. TRL's is
SFTTrainer._prepare_dataset, unpacked: with prompt and completion (labels on answers, as ours) and
with messages (labels on everything).
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from hashtune.chat.chunks import tokenize_rows
from hashtune.chat.examples import fit, tokenize_conversation
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.store.synthetic import CHAT_TEMPLATE, build_synthetic

CHUNK_ROWS = 128


def main() -> None:
    """Measure and print one line per contender."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    with wanted.rows.open(encoding="utf-8") as handle:
        pairs = [json.loads(line) for line in handle][: wanted.limit]
    with tempfile.TemporaryDirectory() as folder:
        build_synthetic(Path(folder), seed=0)
        tokenizer = load(folder)
    contenders = {"hashtune": ours(pairs, tokenizer), **theirs(pairs, tokenizer)}
    medians = measure(contenders, len(pairs), wanted.rounds)
    for name, (wall, cpu) in medians.items():
        ratio = ""
        if name != "hashtune":
            ratio = f"  hashtune is {medians['hashtune'][0] / wall:.2f} times that (wall)"
            ratio += f", {medians['hashtune'][1] / cpu:.2f} times (CPU)"
        print(f"{name:24} {wall:7.0f} rows/s  {cpu:7.0f} rows/CPU s{ratio}")


def load(folder: str) -> Any:
    """The synthetic base's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def measure(
    contenders: dict[str, Callable[[], None]], rows: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Median rows per second of wall and of CPU time; the first round warms up and is left out."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, run in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: (
            rows / statistics.median(wall for wall, _ in values[1:]),
            rows / statistics.median(cpu for _, cpu in values[1:]),
        )
        for name, values in seconds.items()
    }


def ours(pairs: list[dict[str, str]], tokenizer: Any) -> Callable[[], None]:
    """Rows as prepare writes them, through what a worker of the stage does."""
    rows = [
        {"id": str(n), "source": "gsm8k", "line": n + 1, "group": None, "messages": as_json(pair)}
        for n, pair in enumerate(pairs)
    ]
    template = Template(tokenizer, CHAT_TEMPLATE, {}, "2026-01-01")
    tokenize = partial(
        tokenize_conversation,
        template=template,
        stops=stop_sequences(template, eos_ids=[2, 0], declared=[]),
        loss_on="assistant",
        unstable="error",
        mismatch="error",
    )
    limit = partial(fit, max_seq_len=1024, over_length="drop")

    def run() -> None:
        for start in range(0, len(rows), CHUNK_ROWS):
            part = tokenize_rows(rows[start : start + CHUNK_ROWS], tokenize=tokenize, limit=limit)
            assert not part.findings

    return run


def as_json(pair: dict[str, str]) -> str:
    """The messages column of a question and its answer."""
    return json.dumps(turn("user", pair["question"]) + turn("assistant", pair["answer"]))


def turn(role: str, content: str) -> list[dict[str, str]]:
    """One message."""
    return [{"role": role, "content": content}]


def theirs(pairs: list[dict[str, str]], tokenizer: Any) -> dict[str, Callable[[], None]]:
    """TRL's preparation of the same rows; nothing where TRL is not installed."""
    try:
        from datasets import Dataset, disable_caching, disable_progress_bars
        from trl.trainer.sft_trainer import SFTTrainer
    except ImportError:
        print("TRL is not installed: its rate is left out")
        return {}
    disable_caching()
    disable_progress_bars()
    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=True)
    settings = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        assistant_only_loss=False,
        max_length=1024,
        truncation_mode="keep_start",
        shuffle_dataset=False,
    )
    questions = [(turn("user", p["question"]), turn("assistant", p["answer"])) for p in pairs]
    split = Dataset.from_list([{"prompt": q, "completion": a} for q, a in questions])
    joined = Dataset.from_list([{"messages": q + a} for q, a in questions])

    def prepare(data: Any) -> None:
        SFTTrainer._prepare_dataset(trainer, data, tokenizer, settings, False, None, "train")

    return {
        "TRL, prompt/completion": partial(prepare, split),
        "TRL, messages": partial(prepare, joined),
    }


if __name__ == "__main__":
    main()
