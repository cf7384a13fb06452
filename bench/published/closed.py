"""The closed form of a point: its run as a Workload. No rehearsal, no figure of a row.

What LitGPT holds beyond the words of a Workload is added by formula (litgpt_closed.py). What only
the rehearsal knows: workspaces of single operations, and the allocator, so that a reserved figure
is estimated as an allocated one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.memory.activations import estimate
from hashtune.memory.shapes import read_shape
from hashtune.memory.workload import Workload
from published.known import config_of
from published.litgpt_closed import beyond, logits
from published.litgpt_settings import Part
from published.litgpt_settings import Settings as LitGpt
from published.metamath_settings import Settings as MetaMath
from published.rows import Point

Names = dict[Part, tuple[str, ...]]
LLAMA: Names = {
    "query": ("q_proj",),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "projection": ("o_proj",),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "head": (),
}
# transformers' names of the parts that LitGPT adapts; GPT-NeoX has one module for three of them
PARTS: dict[str, Names] = {
    "phi": {**LLAMA, "projection": ("dense",), "mlp": ("fc1", "fc2")},
    "gpt_neox": {
        **LLAMA,
        **{part: ("query_key_value",) for part in ("query", "key", "value")},
        "projection": ("dense",),
        "mlp": ("dense_h_to_4h", "dense_4h_to_h"),
    },
}


def module_names(config: Mapping[str, Any], parts: Sequence[Part]) -> tuple[str, ...]:
    """transformers' modules for LitGPT's parts, each once."""
    names = PARTS.get(config["model_type"], LLAMA)
    return tuple(dict.fromkeys(name for part in parts for name in names[part]))


def closed_form(point: Point) -> int:
    """Bytes: the sum of all buckets; a paged optimizer's state is not in what torch counts."""
    config = config_of(point.model)["config"]
    run = point.run
    work = _metamath(config, run) if isinstance(run, MetaMath) else _litgpt(config, run)
    buckets = estimate(work)
    if isinstance(run, MetaMath):
        return sum(buckets.values())
    if run.quantize != "none":
        buckets["optimizer"] = 0
    shared_norm = config["model_type"] == "phi"
    more = beyond(work.shape, run, shared_norm=shared_norm)
    loss = buckets["logits_loss"]
    buckets["logits_loss"] = logits(work.shape, run, loss, shared_norm=shared_norm)
    return sum(buckets.values()) + sum(more.values())


def _litgpt(config: dict[str, Any], run: LitGpt) -> Workload:
    # LitGPT ties no head, and its GELU is one operation
    own: dict[str, Any] = {"tie_word_embeddings": False}
    if config["model_type"] == "phi":
        own["hidden_act"] = "gelu"
    targets = module_names(config, run.lora.parts) if run.lora else ()
    return Workload(
        shape=read_shape({**config, **own}),
        quantization="none" if run.quantize == "none" else "nf4",
        double_quant=run.quantize == "nf4-dq",
        precision="bf16",
        stored="fp32" if run.mixed else "bf16",
        route="fp32_autocast" if run.mixed else "bf16_true",
        optimizer="adamw" if run.quantize == "none" else "paged_adamw_32bit",
        variant="lora",
        r=run.lora.r if run.lora else 0,
        targets=targets,
        dropout=run.lora is not None and run.lora.dropout > 0,
        micro=run.micro,
        longest_row=run.tokens,
        trained=run.tokens,
        masked=False,
        loss="listed" if run.lora else "split",
        loss_chunk=run.loss_chunk,
        attention="eager" if config["model_type"] == "gemma2" else "flash",
        accumulates=run.accumulates,
        kbit_fp32=False,
        quantised_head=run.quantize != "none",
        full=run.lora is None,
        device="cuda",
        overhead_bytes=0,
    )


def _metamath(config: dict[str, Any], run: MetaMath) -> Workload:
    return Workload(
        shape=read_shape(config),
        quantization="none",
        double_quant=False,
        precision="bf16",
        route="bf16_true" if run.method == "full" else "fp32_adapter",
        optimizer="adamw",
        variant="dora" if run.method == "dora" else "lora",
        r=run.r,
        targets=run.targets,
        dropout=False,
        micro=run.micro,
        longest_row=run.tokens,
        trained=run.tokens,
        masked=True,
        loss="full",
        loss_chunk=0,
        accumulates=False,
        full=run.method == "full",
        device="cuda",
        overhead_bytes=0,
    )
