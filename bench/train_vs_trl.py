"""Training speed and peak memory beside TRL's SFTTrainer, on the same rows of the same machine.

    python bench/train_vs_trl.py ROWS.jsonl --base "$(hashtune base)" [--precision fp32]
    python bench/train_vs_trl.py ROWS.jsonl --base FOLDER --device cuda --max-length 8192

ROWS.jsonl has "question" and "answer" per line (GSM8K); FOLDER may be one of random weights
(bench/sft/random_base.py). On a GPU it was not run yet. Without --venv, .venv-bench is made from
bench/requirements.lock; all that is measured runs there. Each measurement is a fresh process
(bench/sft/): ours and TRL's run in turn, --rounds times; the medians count.

Both sides train a LoRA (r16, all linear layers, no dropout) with fused AdamW in fp32 over the same
base, on the same ids and labels (loss on the answer; TRL gets them tokenized), rows of at most
--max-length tokens (1,024), 4 rows a step in file order, clipping at 1.0, constant rate, --threads
threads. bf16 is a bf16 base under autocast. Activation checkpointing is off (--checkpointing: ours
alone).

ours    the functions of stage train, deterministic algorithms required, attention by document,
        --kernels fused or plain:
    pairs     micro-batches of 2 rows end to end (batch.layout=padding_free), 2 accumulated
    packed, unpacked, micro4, grouped: as below
TRL     SFTTrainer, in four layouts of which the fastest counts:
    packed    one row of up to --max-length tokens a step (of GSM8K and 1,024 about 4 rows: others
              need rows of about a quarter of it), TRL's own bins and block mask
    unpacked  micro-batches of 1, 4 accumulated
    micro4    a micro-batch of 4, padded, not accumulated
    grouped   the same with rows of like length (sorted into batches, batches shuffled)

The first --warmup steps are not timed. Rates are of tokens that are not padding, by the clock;
those of a CPU second are only shown, since other work on a machine stretches the former. Memory is
the peak of resident bytes of the process, loading included; with --device cuda what torch allocated
on the GPU. Each first-step loss must be within
0.5 % of that of a plain fp32 loop over the same rows with as many trained tokens, so that two sides
agree within 1 %; else the exit code is 1. Run it with nothing else running.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rounds import ROOT, Result, child, in_turn, median_of
from sft.job import BATCH, LAYOUTS, PAIRS, Job

TOLERANCE = 0.005
LOCK = ROOT / "bench/requirements.lock"
OURS, TRL = "hashtune", "TRL"
SCRIPTS = {OURS: "sft.ours", TRL: "sft.theirs"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
Results = Mapping[tuple[str, str], Sequence[Result]]


def main() -> int:
    """Measure, check the first losses, print the ratios."""
    wanted = arguments()
    python = str((wanted.venv or made_venv()) / "bin/python")
    with tempfile.TemporaryDirectory() as folder:
        rows = str(Path(folder) / "rows.json")
        count = str(BATCH * (wanted.warmup + wanted.steps))
        command = [python, "-m", "sft.rows", str(wanted.rows), wanted.base, count]
        rest = [str(wanted.max_length), rows, wanted.device]
        print(json.dumps(child([*command, *rest], OFFLINE)))
        print(
            f"precision {wanted.precision}, {wanted.threads} threads, load {os.getloadavg()[0]:.1f}"
        )
        names = [*itertools.product([OURS], wanted.ours), *itertools.product([TRL], wanted.trl)]
        jobs = {(side, layout): job_of(wanted, rows, layout) for side, layout in names}
        runs = {
            name: partial(child, [python, "-m", SCRIPTS[name[0]], job.text()], OFFLINE)
            for name, job in jobs.items()
        }
        results = in_turn(runs, wanted.rounds, partial(print, flush=True))
        expected = reference(python, jobs[names[0]], results)
    return show(results, faults(results, expected))


def job_of(wanted: argparse.Namespace, rows: str, layout: str) -> Job:
    """What a side is told."""
    return Job(
        base=wanted.base,
        rows=rows,
        layout=layout,
        precision=wanted.precision,
        kernels=wanted.kernels,
        checkpointing=wanted.checkpointing,
        threads=wanted.threads,
        warmup=wanted.warmup,
        max_length=wanted.max_length,
        device=wanted.device,
    )


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--base", required=True, help="folder of the base")
    parser.add_argument("--venv", type=Path, help="an environment to use instead of .venv-bench")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--kernels", choices=["plain", "fused"], default="fused")
    parser.add_argument("--checkpointing", choices=["none", "selective", "full"], default="none")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--max-length", type=int, default=1024, help="tokens of a row, at most")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=6, help="measured steps of 4 rows")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them, at least 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", nargs="+", choices=[*LAYOUTS, PAIRS], default=[PAIRS])
    parser.add_argument("--trl", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    wanted = parser.parse_args(given)
    if min(wanted.warmup, wanted.rounds) < 1 or wanted.steps < 2:
        parser.error("--warmup and --rounds are at least 1, --steps at least 2")
    return wanted


def made_venv() -> Path:
    """.venv-bench with exactly what bench/requirements.lock says, made where it is not there."""
    venv = ROOT / ".venv-bench"
    stamp = venv / "installed"
    lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != lock:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin/python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", "-r", LOCK], check=True)
        stamp.write_text(lock, encoding="utf-8")
    return venv


def reference(python: str, job: Job, results: Results) -> dict[tuple[int, ...], tuple[float, int]]:
    """Loss and trained tokens of the plain loop, by the rows of a first step."""
    groups = sorted({tuple(run["first_rows"]) for runs in results.values() for run in runs})
    command = [python, "-m", "sft.reference", job.text(), json.dumps(groups)]
    losses = child(command, OFFLINE)["losses"]
    return {group: (loss, trained) for group, (loss, trained) in zip(groups, losses, strict=True)}


def faults(results: Results, expected: Mapping[tuple[int, ...], tuple[float, int]]) -> list[str]:
    """Each run whose first step was not that of the plain loop on the same rows."""
    found = []
    for (side, layout), runs in results.items():
        for number, run in enumerate(runs, start=1):
            loss, trained = expected[tuple(run["first_rows"])]
            where, own = f"{side} {layout}, round {number}", run["first_trained"]
            if own != trained:
                found.append(f"{where}: {own} trained tokens, the same rows have {trained}")
            if not abs(run["first_loss"] / loss - 1) <= TOLERANCE:  # not <=: catches NaN too
                found.append(
                    f"{where}: first-step loss {run['first_loss']:.5f}, "
                    f"plain loop on the same rows {loss:.5f}"
                )
    return found


def fastest(results: Results, side: str) -> tuple[str, str]:
    """The side's layout with the highest median rate."""
    rates = {n: median_of(runs, "tokens_per_second") for n, runs in results.items() if n[0] == side}
    return max(rates, key=rates.__getitem__)


def verdict(results: Results) -> str:
    """Our fastest beside TRL's fastest, each with the memory of that layout."""
    ours, theirs = results[fastest(results, OURS)], results[fastest(results, TRL)]
    ratios = [
        median_of(ours, key) / median_of(theirs, key) for key in ("tokens_per_second", "peak_bytes")
    ]
    return "speed {:.2f}x memory {:.2f}x".format(*ratios)


def show(results: Results, found: Sequence[str]) -> int:
    """Print a line for each contender, then the faults or the ratios."""
    for (side, layout), runs in results.items():
        rates = sorted(run["tokens_per_second"] for run in runs)
        print(
            f"{side:8} {layout:9} {median_of(runs, 'tokens_per_second'):7.1f} tokens/s "
            f"({rates[0]:.1f} to {rates[-1]:.1f}; "
            f"{median_of(runs, 'tokens_per_cpu_second'):.1f} a CPU second)  "
            f"{median_of(runs, 'peak_bytes') / 1e9:.2f} GB"
        )
    for fault in found:
        print(fault)
    if found:
        return 1
    print(f"counted: {' '.join(fastest(results, OURS))}, {' '.join(fastest(results, TRL))}")
    print(verdict(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
