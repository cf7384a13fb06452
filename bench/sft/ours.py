"""Our side: the functions of stage train, with its deterministic algorithms."""

import json
import sys
from dataclasses import replace

import torch
from rounds import clocks, memory
from transformers import AutoModelForCausalLM

from hashtune.packing.rows import build_rows
from hashtune.records import Row
from hashtune.spec.schema import Activations, Determinism, Layout, Method, Optim
from hashtune.training.activations import set_checkpointing
from hashtune.training.documents import attend_as
from hashtune.training.fused.attach import attach
from hashtune.training.model import Trainee, build_trainee, set_determinism
from hashtune.training.optimizers import build_optimizer
from hashtune.training.step import train_step
from sft.job import ALPHA, CLIP, LR, PAIRS, RANK, SIZES, Job, order, rates, read_job, read_rows

METHOD = Method(
    type="lora",
    variant="lora",
    r=RANK,
    alpha=ALPHA,
    dropout=0.0,
    targets="all-linear",
    virtual_tokens=None,
)
OPTIM = Optim(
    name="adamw_fused",
    lr=LR,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    grad_clip=CLIP,
    neftune_alpha=None,
    master_weights=True,
)


def main() -> None:
    """One epoch over the rows."""
    job = read_job(sys.argv[1])
    set_determinism(Determinism(mode="strict", threads=job.threads))
    micro, _ = SIZES[job.layout]
    layout: Layout = "padding_free" if job.layout == PAIRS else "rows"
    steps = planned(job)
    trainee = trainee_of(job)
    optimizer = build_optimizer(trainee.parameters, OPTIM)
    results, ends = [], []
    for number, rows in enumerate(steps):
        results.append(
            train_step(
                *(trainee, optimizer, rows),
                micro=micro,
                lr=LR,
                grad_clip=CLIP,
                layout=layout,
                first=number == 0,
            )
        )
        ends.append(clocks(job.device))
    tokens = [result.tokens for result in results]
    report = {
        **rates(ends, tokens, warmup=job.warmup),
        "peak_bytes": memory(job.device),
        "first_loss": results[0].loss,
        "first_trained": results[0].trained_tokens,
        "first_rows": sorted(int(name) for row in steps[0] for name in row.example_ids),
        "measured_tokens": sum(tokens[job.warmup :]),
        "last_loss": results[-1].loss,
    }
    print(json.dumps(report))


def planned(job: Job) -> list[list[Row]]:
    """The rows of each step."""
    examples = read_rows(job)
    numbers = order([len(example["input_ids"]) for example in examples], job.layout)
    rows = build_rows(
        [examples[number] for number in numbers],
        max_seq_len=job.max_length,
        packing=job.layout == "packed",
    )
    micro, accumulation = SIZES[job.layout]
    size = micro * accumulation
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def trainee_of(job: Job) -> Trainee:
    """The base with a fresh adapter."""
    dtype = torch.bfloat16 if job.precision == "bf16" else torch.float32
    base = AutoModelForCausalLM.from_pretrained(
        job.base, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    ).to(job.device)
    attend_as(base, "documents", [], job.kernels)
    trainee = build_trainee(base, METHOD, precision=job.precision, seed=0)
    if job.kernels == "fused":
        trainee = replace(trainee, fused=attach(trainee.peft, precision=job.precision))
    set_checkpointing(trainee, Activations(checkpointing=job.checkpointing, offload=False))
    return trainee


if __name__ == "__main__":
    main()
