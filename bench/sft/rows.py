"""The first rows of the file as ids and labels, which both sides train on: loss on the answer.

They are tokenized and proven as stage tokenize does it. Prints what they are, and all versions.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rounds import machine
from transformers import AutoTokenizer

from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.over_length import fit
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.records import Conversation

PACKAGES = ("torch", "transformers", "peft", "trl")


def main() -> None:
    """Tokenize `count` rows of `source` into `target`, and name the `device`."""
    source, base, count, max_length, target, device = sys.argv[1:]
    with Path(source).open(encoding="utf-8") as lines:
        pairs = [json.loads(line) for line, _ in zip(lines, range(int(count)), strict=False)]
    examples = tokenized(pairs, base, int(max_length))
    if len(examples) < int(count):
        raise SystemExit(f"{source}: {len(examples)} rows, {count} are needed")
    Path(target).write_text(json.dumps(examples), encoding="utf-8")
    lengths = [len(example["input_ids"]) for example in examples]
    report = {
        "rows": len(examples),
        "tokens": sum(lengths),
        "longest": max(lengths),
        "machine": machine(device),
        "versions": " ".join(f"{name} {version(name)}" for name in PACKAGES),
    }
    print(json.dumps(report))


def tokenized(pairs: list[dict[str, str]], base: str, max_length: int) -> list[dict[str, Any]]:
    """Examples of at most `max_length` tokens, numbered in their order."""
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    template = Template(tokenizer, tokenizer.chat_template, {}, "2026-01-01")
    stops = stop_sequences(template, eos_ids=[tokenizer.eos_token_id], declared=[])
    examples = []
    for number, pair in enumerate(pairs):
        messages = [
            {"role": "user", "content": pair["question"]},
            {"role": "assistant", "content": pair["answer"]},
        ]
        conversation = Conversation(str(number), "gsm8k", messages, number + 1)
        examples += tokenize_conversation(
            conversation, template, stops, loss_on="assistant", unstable="error", mismatch="error"
        ).examples
    lines = {str(number): number + 1 for number in range(len(pairs))}
    kept, _ = fit(examples, max_seq_len=max_length, over_length="error", lines=lines)
    return [{"id": e.id, "input_ids": e.input_ids, "labels": e.labels} for e in kept]


if __name__ == "__main__":
    main()
