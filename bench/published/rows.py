"""The points of ../shared/published_memory.md that are scored, and why the others are not.

A point is one measurement: its run as settings of the system that made it, and the bytes. LitGPT
prints torch.cuda.max_memory_allocated() / 1e9 as GB (finetune/lora.py, finetune/full.py); PEFT's
result files hold bytes reserved since the start.

    28 to 33   tutorials/resource-tables.md (and bf16-mixed: tutorials/finetune_lora.md), Alpaca,
               finetune/lora.py of 2023: r 8 on query and value, dropout 0.05
    34 to 39   config_hub/finetune/README.md and the yaml files beside it, Alpaca2k cut at 512
               tokens; micro_batch_size, global_batch_size, lora_* as there
    23 to 27   method_comparison/MetaMathQA/results/*.json
    "+"        further rows of the same two tables that the file leaves out, with the same settings;
               they were added when the settings were done
"""

from dataclasses import dataclass
from typing import Literal

from published import litgpt_settings
from published.litgpt_settings import ALL, Lora
from published.metamath_settings import Settings as MetaMath

GB = 10**9
GIB = 2**30
A100_40, A10G = 40 * GIB, 24 * GIB


@dataclass(frozen=True, slots=True)
class Point:
    """`row` as the file numbers it. kind: A allocated, R reserved. measured: bytes, or None where
    the run ended out of memory on `card` bytes. note: what the reader must know of this point."""

    row: str
    label: str
    model: str
    run: litgpt_settings.Settings | MetaMath
    kind: Literal["A", "R"]
    measured: int | None
    card: int = 0
    note: str = ""

    @property
    def name(self) -> str:
        """Row, model and label."""
        return f"{self.row}, {self.model}, {self.label}"


def _alpaca(
    row: str, label: str, model: str, micro: int, gb: float | None, **more: object
) -> Point:
    """LitGPT in 2023, one of resource-tables.md."""
    longest = {"llama-2-7b": 1304, "llama-2-13b": 1304, "stablelm-base-alpha-3b": 1034}
    settings = litgpt_settings.Settings(longest.get(model, 1044), micro, Lora(8), **more)
    measured = None if gb is None else round(gb * GB)
    return Point(row, label, model, settings, "A", measured, A100_40)


def _hub(
    row: str,
    label: str,
    model: str,
    micro: int,
    gb: float | None,
    *,
    note: str = "",
    **more: object,
) -> Point:
    """LitGPT in 2024, one of config_hub/finetune."""
    lora = more.pop("lora", Lora(32))
    chunk = {} if lora else {"head_chunk": 0}
    settings = litgpt_settings.Settings(512, micro, lora, micro_batches=2, **chunk, **more)
    measured = None if gb is None else round(gb * GB)
    return Point(row, label, model, settings, "A", measured, A10G, note)


def _metamath(row: str, label: str, run: MetaMath, measured: int) -> Point:
    return Point(row, label, "llama-3.2-3b", run, "R", measured)


Q4 = {"quantize": "nf4"}
DQ = {"quantize": "nf4-dq"}
TINY = {"lora": Lora(32, ALL), "accumulates": False}
NOT_THAT_YAML = (
    "below weights, gradients and the two moments of its own yaml (12.0 GB; 9.9 with a tied head)"
)
WHICH_VERSION = (
    "by litgpt 0.4.13, the first that knows the model; with the embedding that 0.5.0 brought a "
    "week later it would be 0.5 GB more, and which of the two measured is not stated"
)
POINTS = (
    _metamath("23", "full", MetaMath("full"), round(36.20 * GIB)),
    _metamath("25", "LoRA r64", MetaMath("lora", 64), 22_540_189_696),
    _metamath("27", "DoRA r32", MetaMath("dora", 32), 24_540_872_704),
    _alpaca("28", "LoRA, micro 1", "llama-2-7b", 1, 21.30),
    _alpaca("28", "LoRA, micro 2", "llama-2-7b", 2, 29.07),
    _alpaca("28", "LoRA, micro 4", "llama-2-7b", 4, None),
    _alpaca("30", "LoRA", "llama-2-13b", 1, 38.12),
    _alpaca("30", "nf4", "llama-2-13b", 1, 23.14, **Q4),
    _alpaca("30", "nf4-dq", "llama-2-13b", 1, 22.55, **DQ),
    _alpaca("32", "nf4", "stablelm-base-alpha-3b", 1, 6.35, **Q4),
    _alpaca("32", "nf4-dq", "stablelm-base-alpha-3b", 1, 6.19, **DQ),
    _alpaca("32", "bf16-mixed", "stablelm-base-alpha-3b", 1, 26.92, mixed=True),
    _alpaca("33", "LoRA, micro 1", "phi-1.5", 1, 4.82),
    _alpaca("33", "LoRA, micro 2", "phi-1.5", 2, 6.76),
    _alpaca("33", "LoRA, micro 4", "phi-1.5", 4, 10.68),
    _hub("34", "LoRA r32", "llama-3.1-8b", 1, 19.73),
    _hub("34", "nf4, micro 2", "llama-3.1-8b", 2, 17.41, **Q4),
    _hub("35", "full, micro 4", "llama-3.2-1b", 4, 8.70, note=NOT_THAT_YAML, lora=None),
    _hub("35", "LoRA r32", "llama-3.2-1b", 1, 4.49),
    _hub("35", "nf4, micro 2", "llama-3.2-1b", 2, 5.53, note=WHICH_VERSION, **Q4),
    _hub("37", "full, micro 4", "tinyllama-1.1b", 4, 14.10, lora=None),
    _hub("37", "LoRA all+head, micro 8", "tinyllama-1.1b", 8, 13.50, **TINY),
    _hub("37", "nf4 all+head, micro 8", "tinyllama-1.1b", 8, 16.24, **TINY, **Q4),
    _hub("39", "nf4 r16 all+head", "gemma-2-9b", 1, 20.92, lora=Lora(16, ALL, 0.1), **Q4),
    _hub("39", "LoRA r16 all+head", "gemma-2-9b", 1, None, lora=Lora(16, ALL, 0.1)),
)
FURTHER = (
    _alpaca("28+", "nf4", "llama-2-7b", 1, 14.14, **Q4),
    _alpaca("28+", "nf4-dq", "llama-2-7b", 1, 13.84, **DQ),
    _alpaca("30+", "LoRA, micro 2", "llama-2-13b", 2, None),
    _alpaca("32+", "LoRA, micro 1", "stablelm-base-alpha-3b", 1, 9.69),
    _alpaca("32+", "LoRA, micro 2", "stablelm-base-alpha-3b", 2, 12.10),
    _alpaca("32+", "LoRA, micro 4", "stablelm-base-alpha-3b", 4, 16.92),
    _alpaca("33+", "nf4", "phi-1.5", 1, 3.78, **Q4),
    _alpaca("33+", "nf4-dq", "phi-1.5", 1, 3.72, **DQ),
    _hub("34+", "LoRA r32, micro 2", "llama-2-7b", 2, 19.77),
    _hub("34+", "nf4, micro 2", "llama-2-7b", 2, 13.68, **Q4),
    _hub("34+", "LoRA r32, micro 2", "mistral-7b", 2, 20.66),
    _hub("34+", "nf4, micro 2", "mistral-7b", 2, 14.29, **Q4),
)
NOT_SCORED = {
    "1 to 5": "the flags in which the 4090 and the A6000 run differ are not stated, nor what "
    "torch.compile fuses",
    "6 to 8": "eight cards: sharding, prefetching and offload of FSDP are not rehearsed",
    "9 to 18": "the length of the unpacked rows and what torch.compile and activation offload keep "
    "are not stated; each row is a bound on one term",
    "19 to 22": "torchtune's longest row of Alpaca and its loss chunks are not stated",
    "40 to 49": "kind of peak not stated, fused kernels (cut cross-entropy, FlashAttention 2) and "
    "trained parts of embeddings not stated",
    "50, 55, 56": "more than one card, or kind of peak and method not stated",
    "51, 52": "activation offload and Liger's kernels are not rehearsed",
    "54": "kind of peak and loss not stated",
}
