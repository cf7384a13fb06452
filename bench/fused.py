"""How far the gradients of kernels: plain and fused lie from those of fp32, in bf16.

    python bench/fused.py ROWS.jsonl --base "$(hashtune base)" [--documents N]

Of the first N documents (question and answer per line, GSM8K), each cut at 144 tokens, every token
trained, with every LoRA B set to the same small random numbers: the relative norm of the difference
of each tensor's gradient. The plain fp32 model is the truth. Exits 1 where the fused parts lie more
than 1.25 times as far from it as the plain ones, by the norm over all tensors.
"""

import argparse
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median

from rounds import ROOT

sys.path.insert(0, str(ROOT / "src"))
from sft.job import Job
from sft.ours import planned, trainee_of
from sft.rows import tokenized
from torch import Tensor

from hashtune.training.batches import collate
from hashtune.training.fused.check import first_document, gradients_of, with_random_b

WORST = 1.25
LONGEST = 1024
WAYS = (("fp32", "plain"), ("bf16", "plain"), ("bf16", "fused"))
Measured = list[tuple[float, dict[str, Tensor]]]


def main() -> int:
    """Measure the three ways, compare each with the first."""
    wanted = arguments()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "rows.json")
        with wanted.rows.open(encoding="utf-8") as lines:
            pairs = [json.loads(line) for line in islice(lines, wanted.documents)]
        Path(file).write_text(json.dumps(tokenized(pairs, wanted.base, LONGEST)), encoding="utf-8")
        found = [measure(wanted.base, file, *way) for way in WAYS]
    off = [
        show(f"{precision} {kernels}", runs, found[0])
        for (precision, kernels), runs in zip(WAYS[1:], found[1:], strict=True)
    ]
    print(f"fused over plain {off[1] / off[0]:.2f}")
    return int(not off[1] <= WORST * off[0])  # not >: catches NaN too


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--base", required=True, help="folder of the base")
    parser.add_argument("--documents", type=int, default=4)
    return parser.parse_args()


def measure(base: str, file: str, precision: str, kernels: str) -> Measured:
    """Loss and gradients of each document."""
    job = Job(
        **{"base": base, "rows": file, "layout": "unpacked", "precision": precision},
        **{"kernels": kernels, "checkpointing": "none", "threads": 2, "warmup": 1},
        max_length=LONGEST,
        device="cpu",
    )
    trainee = trainee_of(job)
    rows = [row for step in planned(job) for row in step]
    with with_random_b(trainee):
        return [gradients_of(trainee, collate([first_document(row)])) for row in rows]


def show(name: str, runs: Measured, truth: Measured) -> float:
    """Print a line; the norm of all differences over that of all gradients."""
    each: list[float] = []
    squares = [0.0, 0.0]
    for (_, ours), (_, theirs) in zip(runs, truth, strict=True):
        for key, right in theirs.items():
            difference, size = float((ours[key] - right).norm()), float(right.norm())
            each.append(difference / size)
            squares[0] += difference**2
            squares[1] += size**2
    total = float((squares[0] / squares[1]) ** 0.5)
    losses = max(abs(ours / theirs - 1) for (ours, _), (theirs, _) in zip(runs, truth, strict=True))
    print(
        f"{name}: gradients off by {total:.4f} over all, {median(each):.4f} in the median and "
        f"{max(each):.4f} in the worst of {len(each)} tensors; loss by at most {losses:.4f}"
    )
    return total


if __name__ == "__main__":
    sys.exit(main())
