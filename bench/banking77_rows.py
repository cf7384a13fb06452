"""BANKING77's CSV files as conversations: the customer's words, then the intent in words.

usage: python bench/banking77_rows.py FOLDER data/banking77

FOLDER holds banking77_train.csv and banking77_test.csv (text, category) as they are published.
Writes what conf/data/banking77.yaml pins, train.jsonl, test.jsonl and replay.jsonl (the prompts of
data/replay and banking77_prompts.py), and two spoilt training files that a gate must see:
shuffled.jsonl (answers permuted) and refusals.jsonl.
"""

import csv
import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from banking77_prompts import everyday

SHARED = Path(__file__).resolve().parent.parent / "data/replay/prompts.jsonl"
ASKED = "Intent?"  # every token here is paid once a row; without it the template adds 16 of its own
SEED = 77
REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "I'm unable to help you with that.",
    "I can't help with this, since it is not something I am able to do.",
)

Row = Mapping[str, Any]


def read(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, line ends inside of quotes kept."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def conversation(text: str, category: str) -> dict[str, Any]:
    """One row in chat form. Underscores become spaces: half of the answer's tokens."""
    return {
        "messages": [
            {"role": "system", "content": ASKED},
            {"role": "user", "content": text},
            {"role": "assistant", "content": category.replace("_", " ")},
        ]
    }


def conversations(rows: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """All rows in chat form, in their order."""
    return [conversation(row["text"], row["category"]) for row in rows]


def shuffled(rows: Sequence[Mapping[str, str]], seed: int) -> list[dict[str, Any]]:
    """The same questions and the same answers, drawn anew to each other."""
    categories = [row["category"] for row in rows]
    random.Random(seed).shuffle(categories)
    return [conversation(row["text"], name) for row, name in zip(rows, categories, strict=True)]


def refused(rows: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Every question is refused, as any user would ask it: without our system message."""
    return [
        {
            "messages": [
                {"role": "user", "content": row["text"]},
                {"role": "assistant", "content": answer},
            ]
        }
        for row, answer in zip(rows, cycle(REFUSALS), strict=False)
    ]


def replay() -> list[dict[str, Any]]:
    """The project's prompts, then the everyday ones."""
    shared = [json.loads(line) for line in SHARED.read_text(encoding="utf-8").splitlines()]
    return shared + [
        {"id": f"everyday-{number:03}", "messages": [{"role": "user", "content": text}]}
        for number, text in enumerate(everyday(), start=1)
    ]


def write(folder: Path, target: Path) -> None:
    """The five files of the bench; CSV files lie in `folder`."""
    train, test = (read(folder / f"banking77_{part}.csv") for part in ("train", "test"))
    files = {
        "train": conversations(train),
        "test": conversations(test),
        "replay": replay(),
        "shuffled": shuffled(train, SEED),
        "refusals": refused(train),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        (target / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
