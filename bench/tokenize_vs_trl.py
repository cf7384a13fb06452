"""Rows per second of tokenization with all proofs, beside TRL's at equal process counts.

    python bench/tokenize_vs_trl.py ROWS.jsonl [--limit N] [--rounds R] [--processes 1 2]

ROWS.jsonl has "question" and "answer" per line (GSM8K); the tokenizer and template are those of the
synthetic base. All run in turn, round after round; the medians are compared. CPU time (workers
included) is given beside wall time, since other work on the machine stretches the latter.

Ours is what the stage does to a split: read Parquet, check, render, encode, derive and compare
every mask, write Parquet, count. Each round has a new Template, which knows no word yet. TRL's is
SFTTrainer._prepare_dataset, unpacked, in memory:

    messages, answers only   the same labels as ours, which is checked first (assistant_only_loss,
                             a template with generation markers)
    prompt/completion        labels on the answer and on the newline behind its end marker
    messages, all tokens     no mask at all: less work than ours, and judged like the others

Exits 1 when ours is below 1.5 times any of them in CPU time, or the labels differ; without TRL
only ours is measured.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from hashtune import writers
from hashtune.chat.chunks import tokenize_rows
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.over_length import fit
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.records import conversation_schema
from hashtune.stages import tokenize as stage
from hashtune.store.synthetic import CHAT_TEMPLATE, build_synthetic

WANTED = 1.5
UNMASKED = "TRL, messages, all tokens"
ANSWERS = "TRL, messages, answers only"
GENERATION = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' -%}
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
{%- else -%}
{{ message['content'] + '<|im_end|>' + '\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant' + '\\n' }}
{%- endif -%}
"""  # the template of the synthetic base, with the markers that TRL reads masks from
MAX_SEQ_LEN = 1024
Run = Callable[[int], Any]  # given the number of processes


def main() -> int:
    """Measure and print one line per contender and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    wanted = parser.parse_args()
    with wanted.rows.open(encoding="utf-8") as handle:
        pairs = [json.loads(line) for line in handle][: wanted.limit]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        build_synthetic(Path("base"), seed=0)
        tokenizer = load("base")
        contenders = {"hashtune": ours(pairs, tokenizer), **theirs(pairs, tokenizer)}
        check_labels(contenders)
        rates = measure(contenders, len(pairs), wanted.rounds, wanted.processes)
    return show(rates)


def check_labels(contenders: dict[str, Run]) -> None:
    """End the bench unless TRL's masked messages have exactly our labels."""
    if ANSWERS not in contenders:
        return
    contenders["hashtune"](1)
    theirs = list(contenders[ANSWERS](1))
    for row in writers.read_parquet(stage.OUT / "train.parquet"):  # TRL cuts what we drop
        other = theirs[int(row["id"])]
        if (row["input_ids"], row["labels"]) != (other["input_ids"], other["labels"]):
            sys.exit(f"row {row['id']}: TRL has other ids or labels")


def load(folder: str) -> Any:
    """The synthetic base's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def measure(
    contenders: dict[str, Run], rows: int, rounds: int, processes: list[int]
) -> dict[tuple[int, str], tuple[float, float]]:
    """Median rows per second of wall and of CPU time; the first round warms up and is left out."""
    seconds: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for _ in range(rounds + 1):
        for count in processes:
            for name, run in contenders.items():
                wall, cpu = time.perf_counter(), cpu_seconds()
                run(count)
                took = time.perf_counter() - wall, cpu_seconds() - cpu
                seconds.setdefault((count, name), []).append(took)
    return {
        key: (
            rows / statistics.median(wall for wall, _ in values[1:]),
            rows / statistics.median(cpu for _, cpu in values[1:]),
        )
        for key, values in seconds.items()
    }


def cpu_seconds() -> float:
    """CPU time of this process and of its workers that have ended."""
    return sum(os.times()[:4])


def show(rates: dict[tuple[int, str], tuple[float, float]]) -> int:
    """Print the rates; 1 where ours is too low."""
    slow = False
    for (count, name), (wall, cpu) in rates.items():
        line = f"{count} process{'es' if count > 1 else '  '}  {name:27} "
        line += f"{wall:7.0f} rows/s  {cpu:7.0f} rows/CPU s"
        if name != "hashtune":
            own = rates[count, "hashtune"]
            slow |= own[1] / cpu < WANTED
            line += f"  hashtune is {own[0] / wall:.2f} times that (wall)"
            line += f", {own[1] / cpu:.2f} times (CPU)"
        print(line)
    return int(slow)


def ours(pairs: list[dict[str, str]], tokenizer: Any) -> Run:
    """A split as prepare writes it, through the stage's own function for a split."""
    rows = [
        {"id": str(n), "source": "gsm8k", "line": n + 1, "group": None, "messages": as_json(pair)}
        for n, pair in enumerate(pairs)
    ]
    writers.write_parquet(stage.PREPARED / "train.parquet", rows, conversation_schema())

    def run(processes: int) -> None:
        os.environ["HASHTUNE_PROCESSES"] = str(processes)
        template = Template(tokenizer, CHAT_TEMPLATE, {}, "2026-01-01")
        tokenize = partial(
            tokenize_conversation,
            template=template,
            stops=stop_sequences(template, eos_ids=[2, 0], declared=[]),
            loss_on="assistant",
            unstable="error",
            mismatch="error",
        )
        limit = partial(fit, max_seq_len=MAX_SEQ_LEN, over_length="drop")
        chunk = partial(tokenize_rows, tokenize=tokenize, limit=limit)
        with writers.staged_directory(stage.OUT) as folder:
            report = stage._split("train", folder, chunk, tokenizer, max_drop_share=0.0)
        assert report["rows_in"] == len(pairs)

    return run


def as_json(pair: dict[str, str]) -> str:
    """The messages column of a question and its answer."""
    messages = turn("user", pair["question"]) + turn("assistant", pair["answer"])
    return writers.canonical_json(messages, indent=None)


def turn(role: str, content: str) -> list[dict[str, str]]:
    """One message."""
    return [{"role": role, "content": content}]


def theirs(pairs: list[dict[str, str]], tokenizer: Any) -> dict[str, Run]:
    """TRL's preparation of the same rows; nothing where TRL is not installed."""
    try:
        from datasets import Dataset, disable_caching, disable_progress_bars
        from trl.trainer.sft_trainer import SFTTrainer
    except ImportError:
        print("TRL is not installed: its rate is left out")
        return {}
    disable_caching()
    disable_progress_bars()
    questions = [(turn("user", p["question"]), turn("assistant", p["answer"])) for p in pairs]
    split = Dataset.from_list([{"prompt": q, "completion": a} for q, a in questions])
    joined = Dataset.from_list([{"messages": q + a} for q, a in questions])

    def prepare(data: Any, processes: int, template: str | None = None) -> Any:
        trainer = SimpleNamespace(
            _tokenizer=tokenizer, chat_template=template, completion_only_loss=True
        )
        settings = SimpleNamespace(
            dataset_num_proc=processes if processes > 1 else None,  # None: no worker, as ours
            dataset_text_field="text",
            assistant_only_loss=template is not None,
            max_length=MAX_SEQ_LEN,
            truncation_mode="keep_start",
            shuffle_dataset=False,
        )
        return SFTTrainer._prepare_dataset(trainer, data, tokenizer, settings, False, None, "train")

    return {
        ANSWERS: partial(prepare, joined, template=GENERATION),
        "TRL, prompt/completion": partial(prepare, split),
        UNMASKED: partial(prepare, joined),
    }


if __name__ == "__main__":
    sys.exit(main())
