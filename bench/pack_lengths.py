"""Rows and seconds of packing, beside best-fit decreasing, on seeded lengths and on GSM8K.

usage: python bench/pack_lengths.py [--count 1000000] [--gsm8k FILE --base FOLDER]

One process on one core. "like GSM8K" are 7,473 lengths of a log-normal distribution; --gsm8k (JSON
lines with question and answer) adds the real ones, rendered with the chat template in --base, such
as "$(hashtune base)". Every packing is checked: all documents once, no row above the
capacity, no more rows than best-fit decreasing. Exits 1 when a million lengths take 3 s or more.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from hashtune.packing.bins import best_fit_decreasing, lower_bound, pack_lengths

SEED = 0
LIMIT_SECONDS = 3.0
MILLION = 1_000_000


def cases(count: int) -> list[tuple[str, int, list[int]]]:
    """Named (capacity, lengths), all drawn from SEED."""
    random = np.random.default_rng(SEED)

    def clipped(values: np.ndarray, capacity: int) -> list[int]:
        return np.clip(values.astype(int), 1, capacity).tolist()

    drawn = [("like GSM8K", 1024, clipped(random.lognormal(5.3, 0.4, 7473), 1024))]
    for capacity in (1024, 4096, 32768):
        chat = clipped(random.lognormal(5.3, 0.8, count), capacity)
        tail = clipped(random.pareto(1.2, count) * 100 + 20, capacity)
        flat = random.integers(1, capacity + 1, count).tolist()
        drawn += [("log-normal", capacity, chat), ("long tail", capacity, tail)]
        drawn += [("uniform", capacity, flat)]
    return drawn


def gsm8k(file: Path, base: Path) -> list[int]:
    """Tokens of each row as a conversation of question and answer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = map(json.loads, filter(None, file.read_text(encoding="utf-8").split("\n")))
    chats = [
        [{"role": "user", "content": r["question"]}, {"role": "assistant", "content": r["answer"]}]
        for r in rows
    ]
    return [len(ids) for ids in tokenizer.apply_chat_template(chats)["input_ids"]]


def check(lengths: Sequence[int], capacity: int, rows: list[list[int]], limit: int) -> None:
    """AssertionError when a document is lost or doubled, a row too full, or rows above `limit`."""
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert max(sum(lengths[number] for number in row) for row in rows) <= capacity
    assert len(rows) <= limit, (len(rows), limit)


def main() -> int:
    """Print one line per case; 1 when the time limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", type=Path, metavar="FILE")
    parser.add_argument("--base", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=MILLION)
    arguments = parser.parse_args()
    every = cases(arguments.count)
    if arguments.gsm8k:
        lengths = gsm8k(arguments.gsm8k, arguments.base)
        every.insert(0, ("GSM8K", 1024, [length for length in lengths if length <= 1024]))
    late = 0
    print("lengths       capacity  documents   bound    rows     BFD    padding  seconds  BFD s")
    for name, capacity, lengths in every:
        started = time.process_time()
        rows = pack_lengths(lengths, capacity)
        seconds = time.process_time() - started
        started = time.process_time()
        decreasing = len(best_fit_decreasing(lengths, capacity))
        other = time.process_time() - started
        check(lengths, capacity, rows, decreasing)
        late += len(lengths) <= MILLION and seconds >= LIMIT_SECONDS
        padding = 1 - sum(lengths) / (len(rows) * capacity)
        print(
            f"{name:<12} {capacity:>9} {len(lengths):>10} {lower_bound(lengths, capacity):>7}"
            f" {len(rows):>7} {decreasing:>7} {padding:>9.3%} {seconds:>8.2f} {other:>6.2f}",
            flush=True,
        )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
