"""A rehearsal of an 8B step takes less than 30 s of CPU in one thread; else the exit code is 1.

    python bench/rehearse_8b.py
    python bench/rehearse_8b.py --clock                            # on quiet cores: by the clock
    python bench/rehearse_8b.py --base qwen3-32b --method qlora

LoRA r16 on all linear modules, one row of 4,096 tokens, every block checkpointed, bf16, AdamW, as
`dvc repro plan` would rehearse it for a GPU: two steps and an evaluation on fake tensors, without
weights and without a GPU. The time is that of the whole process but for the interpreter's start.
By the clock a busy machine proves nothing about the code; on quiet cores one thread's two times are
the same.
"""

import time

STARTED = time.perf_counter()  # before what is imported, which is most of the time

import argparse  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from hashtune.memory.known_models import find_base  # noqa: E402
from hashtune.memory.rehearsal.run import Settings, rehearse  # noqa: E402
from hashtune.records import IGNORE_INDEX, Row  # noqa: E402
from hashtune.spec.schema import (  # noqa: E402
    Activations,
    Batch,
    Method,
    Optim,
    Quantization,
)

LIMIT = 30.0  # seconds
TOKENS = 4096


def main() -> int:
    """Rehearse, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="llama-3.1-8b", help="a known base or a config.json")
    parser.add_argument("--method", choices=("lora", "qlora"), default="lora")
    parser.add_argument("--clock", action="store_true", help="judge the time by the clock")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    row = Row(0, ["x"], [TOKENS], [5] * TOKENS, [IGNORE_INDEX, *[5] * (TOKENS - 1)])
    found = rehearse(settings_of(wanted.base, wanted.method), [row], [row])
    seconds, used = time.perf_counter() - STARTED, time.process_time()
    print(
        f"{wanted.base}, {wanted.method}: {seconds:.1f} s by the clock, "
        f"{used:.1f} s of CPU; "
        f"peak {found.peak / 1e9:.3f} GB in the {found.peak_phase}, reserved "
        f"{found.reserved / 1e9:.3f} GB; {len(found.events.births)} storages"
    )
    for name, phase in found.phases.items():
        print(f"  {name:10} {phase.peak / 1e9:8.3f} GB")
    return 0 if (seconds if wanted.clock else used) < LIMIT else 1


def settings_of(base: str, method: str) -> Settings:
    """The sections of the spec."""
    fields: dict[str, Any] = dict.fromkeys(Method.model_fields)
    fields |= {"type": method, "variant": "lora", "r": 16, "alpha": 32.0, "dropout": 0.0}
    fields["targets"] = "all-linear"
    return Settings(
        config=find_base(base).config,
        method=Method(**fields),
        quantization=Quantization(type="nf4" if method == "qlora" else "none", double_quant=True),
        optim=Optim(
            name="adamw",
            lr=1e-4,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=0.0,
            grad_clip=1.0,
            neftune_alpha=None,
            master_weights=True,
        ),
        batch=Batch(micro=1, grad_accum=1, world_size=1, attention="mask", layout="rows"),
        activations=Activations(checkpointing="full", offload=False),
        precision="bf16",
        kernels="plain",
        device="cuda",
    )


if __name__ == "__main__":
    sys.exit(main())
