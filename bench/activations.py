"""The plan's estimate of a step is within 10 % of its peak; else the exit code is 1. Printed are
the bytes of each method and way of checkpointing.

    python bench/activations.py                                         # 6 blocks of random weights
    python bench/activations.py --base "$(hashtune base)" --tokens 256 --rows 1

The peak is the most bytes alive at once in forward and backward, beside weights and adapter:
every storage that an operation makes is followed, so load and machine do not matter. fp32, no
dropout, each row is one document, all labels but the first are trained.

    none       all activations are kept
    products   what torch's selective contexts call so: results of matrix products are kept, the
               rest is computed again (not offered: as much is kept as without; no estimate)
    selective  every second block is computed again
    full       every block is computed again
    prompt, prefix    20 virtual tokens in place of a LoRA (r16, all linear modules), all kept
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peak import Peak
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from transformers import AutoModelForCausalLM, LlamaConfig

from hashtune.memory import activations
from hashtune.memory.closed_form import LOSS_CHUNK, Workload
from hashtune.memory.shapes import read_shape
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Activations, Method
from hashtune.training.activations import set_checkpointing
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee, build_trainee

TINY: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 128,
    "tie_word_embeddings": True,
}
PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default]
RANK, VIRTUAL = 16, 20
LORA: Mapping[str, Any] = {
    "type": "lora",
    "variant": "lora",
    "r": RANK,
    "alpha": 16.0,
    "dropout": 0.0,
    "targets": "all-linear",
    "virtual_tokens": None,
}
SOFT = ("prompt", "prefix")
VARIANTS = ("none", "products", "selective", "full", *SOFT)
CHECKPOINTED = ("selective", "full")
MARGIN = 0.1


def main() -> int:
    """Measure every variant, print a line for each, judge the estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="folder of a base instead of random weights")
    parser.add_argument("--tokens", type=int, default=128, help="of each row")
    parser.add_argument("--rows", type=int, default=1, help="of the micro-batch")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    base = wanted.base
    config = json.loads((base / "config.json").read_text(encoding="utf-8")) if base else {}
    config = config or {**TINY, "model_type": "llama", "head_dim": 16}
    code = 0
    for name in wanted.variants:
        work = workload(name, config, wanted.tokens, wanted.rows)
        peak = measured(trainee_of(name, wanted.base), work)
        ratio = estimate(work) / peak
        said = "" if name == "products" else f"  plan {estimate(work):13,}  ratio {ratio:.3f}"
        print(f"{name:9} peak {peak:13,} bytes{said}")
        code |= name != "products" and abs(ratio - 1) > MARGIN
    return int(code)


def workload(name: str, config: dict[str, Any], tokens: int, rows: int) -> Workload:
    """The step as the plan describes it."""
    soft = name if name in SOFT else None
    return Workload(
        shape=read_shape(config),
        quantization="none",
        double_quant=False,
        precision="fp32",
        optimizer="adamw",
        variant="lora",
        r=0 if soft else RANK,
        targets=() if soft else "all-linear",
        dropout=False,
        micro=rows,
        longest_row=tokens,
        trained=tokens - 1,
        masked=soft == "prefix",
        loss_chunk=LOSS_CHUNK,
        device="cpu",
        overhead_bytes=0,
        soft=soft,
        virtual_tokens=VIRTUAL if soft else 0,
        checkpointing=name if name in CHECKPOINTED else "none",
    )


def estimate(work: Workload) -> int:
    """What the plan says is allocated during forward and backward of the first micro-batch."""
    before = ("weights", "adapter", "master", "optimizer", "overhead")
    buckets = activations.estimate(replace(work, accumulates=False))
    return sum(count for name, count in buckets.items() if name not in before)


def trainee_of(name: str, folder: Path | None) -> Trainee:
    """The model with its adapter, checkpointing set."""
    torch.manual_seed(0)
    if folder is None:
        base = AutoModelForCausalLM.from_config(LlamaConfig(**TINY), attn_implementation="sdpa")
    else:
        base = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    soft = {**dict.fromkeys(LORA), "type": name, "virtual_tokens": VIRTUAL}
    method = soft if name in SOFT else LORA
    trainee = build_trainee(base, Method(**method), precision="fp32", seed=0)
    if name in CHECKPOINTED:
        set_checkpointing(trainee, Activations(checkpointing=name, offload=False))
    if name == "products":
        contexts = partial(create_selective_checkpoint_contexts, PRODUCTS)
        kept = {"use_reentrant": False, "context_fn": contexts}
        base.activation_checkpointing_enable(activation_checkpointing_kwargs=kept)
        base.disable_input_require_grads()
    return trainee


def measured(trainee: Trainee, work: Workload) -> int:
    """Peak bytes of a step, beside what is there before it."""
    ids = [5] * work.longest_row
    labels = [IGNORE_INDEX, *ids[1:]]
    rows = [Row(n, ["x"], [len(ids)], ids, labels) for n in range(work.micro)]
    with Peak([*trainee.peft.parameters(), *trainee.peft.buffers()]) as peak:
        batch = collate(rows)
        token_losses(trainee.hidden(batch), batch.labels, trainee.head).loss.backward()
    return peak.peak


if __name__ == "__main__":
    sys.exit(main())
