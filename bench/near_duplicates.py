"""Near-duplicates: our exact join beside MinHash LSH of datasketch, where that is installed.

    python bench/near_duplicates.py ROWS.jsonl [--times 1,10] [--sample 2000]

ROWS.jsonl has "question" and "answer" per line (GSM8K). Every copy of the rows beyond the first
has words of its own; after every 20th row stands a near-copy of it with 1 to 6 words replaced, so
that similarities lie on both sides of 0.8. Both contenders see the shingles of
data/near_duplicates.py, compare a row with earlier rows that stay, and drop it when the exact
similarity is at least 0.8; MinHash has 128 permutations. Each run has a process of its own: CPU
seconds and peak memory, the texts included. Recall and precision are of the pairs that meet or
stand in one band, among the first --sample rows, against the comparison of all pairs.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prepare_memory import peak

from hashtune.data.alike import first_alike, meeting_points, ranked
from hashtune.data.near_duplicates import jaccard, shingles

THRESHOLD, WORDS, PERMUTATIONS = 0.8, 3, 128
EVERY = 20
Pairs = set[tuple[int, int]]


def main() -> None:
    """Run every contender on every size; or, in the child, one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--times", default="1,10")
    parser.add_argument("--sample", type=int, default=2000)
    parser.add_argument("--only", choices=CONTENDERS, default=None)
    wanted = parser.parse_args()
    if wanted.only:
        every = list(texts(wanted.rows, int(wanted.times)))
        print(json.dumps(measured(wanted.only, every, wanted.sample)))
        return
    for times, name in itertools.product(wanted.times.split(","), CONTENDERS):
        command = [sys.executable, __file__, str(wanted.rows), "--times", times, "--only", name]
        command += ["--sample", str(wanted.sample)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"x{times:3} {name:10} {done.stdout.strip()}", flush=True)


def texts(path: Path, times: int) -> Iterator[str]:
    """The rows, their copies in other words, and the planted near-copies."""
    chance = random.Random(0)
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    for copy in range(times):
        for number, row in enumerate(rows):
            words = f"{row['question']} {row['answer']}".split()
            if copy:
                words = [f"{word}x{copy}" for word in words]
            yield " ".join(words)
            if number % EVERY == 0:
                for place in chance.sample(
                    range(len(words)), min(len(words), number // 20 % 6 + 1)
                ):
                    words[place] = "other"
                yield " ".join(words)


def measured(name: str, every: list[str], sample: int) -> dict[str, Any]:
    """What one contender drops and costs, and how its pairs compare with all pairs."""
    drop, pairs_of = CONTENDERS[name]
    began = time.process_time()
    dropped = drop(every)
    seconds, peak_bytes = time.process_time() - began, peak()
    found, true = pairs_of(every[:sample]), all_pairs(every[:sample])
    return {
        "rows": len(every),
        "dropped": dropped,
        "CPU seconds": round(seconds, 1),
        "peak MB": round(peak_bytes / 1e6, 1),
        "true pairs": len(true),
        "recall": round(len(found & true) / len(true), 4),
        "precision before comparing": round(len(found & true) / max(1, len(found)), 4),
    }


def all_pairs(some: list[str]) -> Pairs:
    """Every pair of at least the threshold."""
    sets = [shingles(text, WORDS) for text in some]
    numbers = itertools.combinations(range(len(sets)), 2)
    return {(a, b) for a, b in numbers if jaccard(sets[a], sets[b]) >= THRESHOLD}


def drop_ours(every: list[str]) -> int:
    """Rows that the exact join drops."""
    return len(first_alike((shingles(text, WORDS) for text in every), THRESHOLD))


def pairs_ours(some: list[str]) -> Pairs:
    """Pairs that meet at a rare shingle."""
    held: dict[int, list[int]] = {}
    found: Pairs = set()
    sets = ranked(shingles(text, WORDS) for text in some)
    for row, points in enumerate(meeting_points(sets, THRESHOLD)):
        for point in points:
            found |= {(other, row) for other in held.get(point, ())}
            held.setdefault(point, []).append(row)
    return found


def minhash(text: str) -> Any:
    """The signature of a text's shingles."""
    from datasketch import MinHash

    made = MinHash(num_perm=PERMUTATIONS)
    made.update_batch([shingle.encode() for shingle in sorted(shingles(text, WORDS))])
    return made


def index() -> Any:
    """An empty LSH index with datasketch's own choice of bands."""
    from datasketch import MinHashLSH

    return MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)


def drop_datasketch(every: list[str]) -> int:
    """Rows that MinHash LSH with an exact comparison drops."""
    lsh, dropped = index(), 0
    for row, text in enumerate(every):
        signature, own = minhash(text), shingles(text, WORDS)
        others = sorted(lsh.query(signature))
        if any(jaccard(own, shingles(every[other], WORDS)) >= THRESHOLD for other in others):
            dropped += 1
        else:
            lsh.insert(row, signature)
    return dropped


def pairs_datasketch(some: list[str]) -> Pairs:
    """Pairs that share a band."""
    lsh = index()
    found: Pairs = set()
    for row, text in enumerate(some):
        signature = minhash(text)
        found |= {(other, row) for other in lsh.query(signature)}
        lsh.insert(row, signature)
    return found


CONTENDERS: dict[str, tuple[Callable[[list[str]], int], Callable[[list[str]], Pairs]]] = {
    "ours": (drop_ours, pairs_ours),
    "datasketch": (drop_datasketch, pairs_datasketch),
}


if __name__ == "__main__":
    main()
