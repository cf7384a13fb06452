"""What checkpointing, packing, compilation and the chunked loss each cost and save, on one model.

    python bench/ablation.py --base "$(hashtune base)" --precision fp32 --documents 4 --steps 2 \\
        --warmup 1 --rounds 1
    python bench/ablation.py --device cuda --hidden 2048 --layers 16 --heads 32 --kv-heads 8 \\
        --intermediate 8192 --vocabulary 128256 --seq-len 8192 --peak-tflops 989

Without --base the model is a Llama of the given shape with random weights. `plain` computes without
any of them; each other variant switches on what its name says, joined by +:

    checkpointing  activations of each layer are computed again (transformers', non-reentrant)
    packing        documents share rows of --seq-len tokens, kept apart by a mask, one row a
                   micro-batch; without it micro-batches of --micro documents are padded
    documents      attention by a call for each document (batch.attention=documents), without a mask
    compile        torch.compile of each layer; its time is in the first step
    full-logits    logits of all positions at once, without entropy and accuracy, in place of ours:
                   trained positions in chunks

Every step trains on the same seeded documents of random tokens, loss on their second halves,
through the functions of stage train: LoRA (r16, all linear layers) or all weights, fused AdamW.
Each measurement is a fresh process (bench/lab.py), so that its peak memory is its own; the variants
run in turn, --rounds times, and medians are printed. Memory on a CPU is the peak of resident bytes,
loading included; on CUDA what torch allocated.

MFU credits 4N operations a token with LoRA and 6N with all weights (N parameters of the base,
attention scores left out, nothing for what checkpointing computes twice), over --peak-tflops, or
over the fastest matrix product measured in the same runs. Tokens are without padding.

The exit code is 1 where a variant's first-step loss or gradient norm is not that of `plain`, within
1e-5 and 1e-4 of it in fp32, 0.5 % and 5 % in bf16; and, with deterministic algorithms, where two
rounds of a variant do not give the same bits.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rounds import Result, child, in_turn, median_of

PLAIN = "plain"
SWITCHES = ("checkpointing", "packing", "documents", "compile", "full-logits")
VARIANTS = ("checkpointing", "packing", "packing+documents", "compile", "full-logits")
TOLERANCES = {
    "fp32": {"first_loss": 1e-5, "first_norm": 1e-4},
    "bf16": {"first_loss": 5e-3, "first_norm": 5e-2},
}
OPERATIONS = {"lora": 4, "full": 6}  # per parameter and token, forward and backward
SHORTEST = 8
Results = Mapping[str, Sequence[Result]]


@dataclass(frozen=True, slots=True)
class Setting:
    """One measurement. `base` is a folder, or None for random weights of the shape."""

    variant: str
    base: str | None
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    method: str
    device: str
    precision: str
    determinism: str
    threads: int
    documents: int
    micro: int
    seq_len: int
    steps: int
    warmup: int


def main() -> int:
    """Measure every variant, print a line for each, check their losses."""
    wanted = vars(arguments())
    variants, rounds, tflops = (wanted.pop(key) for key in ("variants", "rounds", "peak_tflops"))
    runs = {
        name: partial(
            child,
            [sys.executable, "-m", "lab", json.dumps(asdict(Setting(variant=name, **wanted)))],
            {"HF_HUB_OFFLINE": "1"},
        )
        for name in dict.fromkeys([PLAIN, *variants])
    }
    print(f"load {os.getloadavg()[0]:.1f}")
    results = in_turn(runs, rounds, partial(print, flush=True))
    peak = tflops * 1e12 if tflops else fastest_product(results)
    show(results, wanted["method"], peak, measured=tflops is None)
    found = faults(results, wanted["precision"], strict=wanted["determinism"] == "strict")
    for fault in found:
        print(fault)
    print("losses differ" if found else "losses and gradient norms agree")
    return 1 if found else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=None, help="folder of the base")
    for name, default in (
        ("hidden", 256),
        ("layers", 4),
        ("heads", 4),
        ("kv-heads", 2),
        ("intermediate", 768),
        ("vocabulary", 8192),
        ("documents", 8),
        ("micro", 4),
        ("seq-len", 512),
        ("steps", 5),
        ("warmup", 2),
        ("rounds", 3),
        ("threads", len(os.sched_getaffinity(0))),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--method", choices=OPERATIONS, default="lora")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=TOLERANCES, default="bf16")
    parser.add_argument("--determinism", choices=["strict", "off"], default="strict")
    parser.add_argument("--peak-tflops", type=float, help="dense peak of the device, for MFU")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    wanted = parser.parse_args()
    for name in wanted.variants:
        try:
            switches(name)
        except ValueError as error:
            parser.error(str(error))
    return wanted


def switches(variant: str) -> frozenset[str]:
    """What a variant switches on."""
    names = [] if variant == PLAIN else variant.split("+")
    if len(set(names)) < len(names) or not set(names) <= set(SWITCHES):
        raise ValueError(f"{variant!r} is not {PLAIN} or a set of {', '.join(SWITCHES)}")
    return frozenset(names)


def documents(*, count: int, seq_len: int, vocabulary: int, seed: int) -> list[dict[str, Any]]:
    """Documents of random tokens and of lengths up to `seq_len`, loss on their second halves."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        length = round(SHORTEST * (seq_len / SHORTEST) ** chance.random())  # uniform in log length
        ids = [chance.randrange(vocabulary) for _ in range(length)]
        half = length // 2
        made.append({"id": str(number), "input_ids": ids, "labels": [-100] * half + ids[half:]})
    return made


def mfu(parameters: int, method: str, tokens_per_second: float, peak: float) -> float:
    """Share of `peak` (operations a second) that the credited operations are."""
    return OPERATIONS[method] * parameters * tokens_per_second / peak


def fastest_product(results: Results) -> float:
    """Operations per second of the fastest matrix product of all runs."""
    return max(run["product_flops"] for runs in results.values() for run in runs)


def faults(results: Results, precision: str, *, strict: bool) -> list[str]:
    """Variants that do not compute what `plain` does, or not the same in each round."""
    [plain, *_] = results[PLAIN]
    found = []
    for name, runs in results.items():
        for key, tolerance in TOLERANCES[precision].items():
            if not abs(runs[0][key] / plain[key] - 1) <= tolerance:  # so that NaN is a fault
                found.append(f"{name}: {key} {runs[0][key]:.6g}, {PLAIN} has {plain[key]:.6g}")
        for key in ("first_loss", "first_norm", "last_loss"):
            if strict and len({repr(run[key]) for run in runs}) > 1:
                found.append(f"{name}: rounds differ in {key}")
    return found


def show(results: Results, method: str, peak: float, *, measured: bool) -> None:
    """Print device, versions, the convention and a line for each variant."""
    [first, *_] = results[PLAIN]
    print(f"{first['machine']}; {first['versions']}")
    origin = "fastest product measured" if measured else "as given"
    print(
        f"{method}, N = {first['parameters']:,}: {OPERATIONS[method]}N a token, "
        f"peak {peak / 1e12:.3f} TFLOP/s ({origin})"
    )
    for name, runs in results.items():
        speed = median_of(runs, "tokens_per_second")
        print(
            f"{name:17} {median_of(runs, 'step_seconds'):8.3f} s a step "
            f"(first {median_of(runs, 'first_seconds'):.1f})  {speed:9.1f} tokens/s  "
            f"{median_of(runs, 'peak_bytes') / 1e9:6.2f} GB  "
            f"MFU {mfu(first['parameters'], method, speed, peak):6.1%}  "
            f"loss {runs[0]['first_loss']:.6f}  norm {runs[0]['first_norm']:.6f}"
        )


if __name__ == "__main__":
    sys.exit(main())
