"""Routes of weights, kinds of loss, experts and rules of thumb: worked values, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from hashtune.memory.activations import estimate, phases
from hashtune.memory.adapters import all_linear_ranks, lora_parameters
from hashtune.memory.closed_form import host_bytes, logits_bytes, static_bytes, weight_bytes
from hashtune.memory.losses import liger_chunk
from hashtune.memory.routes import Route
from hashtune.memory.rules import gpt_activations, nominal_parameters, static_state
from hashtune.memory.shapes import Linear, Shape, read_shape
from hashtune.memory.workload import Workload

GB = 1e9
ADAPTER = 41_943_040
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
EXPERTS = 32 * 8 * 3 * 4096 * 14336  # 45,097,156,608


@pytest.fixture
def full(lora_8b: Workload) -> Workload:
    return replace(lora_8b, full=True, targets=(), r=0)


def nominal(shape: Shape, billions: int) -> Shape:
    matrix = Linear("self_attn.q_proj", 15_625, billions * 2_000, bias=False)
    bare = replace(shape, hidden=0, vocab=0, norms=(), linears=(matrix,))
    return replace(bare, final_norm=replace(shape.final_norm, width=0))


@pytest.mark.parametrize(
    ("route", "each"),
    [
        ("fp32_autocast", (4, 4, 0, 8)),
        ("bf16_master", (2, 2, 4, 8)),
        ("bf16_true", (2, 2, 0, 4)),
    ],
)
def test_bytes_a_parameter(full: Workload, route: Route, each: tuple[int, ...]) -> None:
    found = static_bytes(replace(full, shape=nominal(full.shape, 8), route=route))
    names = ("weights", "gradients", "master", "optimizer")
    assert tuple(found[name] / 8e9 for name in names) == each


def test_128_and_144_gb_of_8b_and_112_of_7b(full: Workload) -> None:
    """2 + 2 + 4 + 8 bytes, and 2 more of a buffer that adds micro-batches up."""
    route = replace(full, shape=nominal(full.shape, 8), route="bf16_master")
    assert sum(static_bytes(route).values()) / GB == 128.0
    buffered = replace(route, accumulation_buffer=True)
    assert static_bytes(buffered)["accumulation"] / GB == 16.0
    assert sum(static_bytes(buffered).values()) / GB == 144.0
    seven = replace(route, shape=nominal(full.shape, 7))
    assert sum(static_bytes(seven).values()) / GB == 112.0


def test_an_adapter_takes_16_bytes_with_a_master_copy_too(lora_8b: Workload) -> None:
    found = static_bytes(replace(lora_8b, route="bf16_master"))
    assert (found["adapter"], found["master"]) == (2 * ADAPTER, 4 * ADAPTER)
    assert sum(found.values()) - found["weights"] == 16 * ADAPTER
    assert round(16 * ADAPTER / GB, 3) == 0.671
    true = static_bytes(replace(lora_8b, route="bf16_true"))
    assert sum(true.values()) - true["weights"] == 8 * ADAPTER


def test_the_7b_table_by_its_own_rule() -> None:
    """84, 14 and 4 GB: 2 + 2 + 8 bytes without a master copy, a bf16 base, half a byte a weight,
    40e6 adapter parameters without gradients. With a master copy it is 112."""
    rule: dict[str, Any] = {"parameters": 7_000_000_000, "adapter": 40_000_000}
    assert static_state(parameters=7_000_000_000, method="full") / GB == 84.0
    assert round(static_state(**rule, method="lora") / GB) == 14
    assert round(static_state(**rule, method="qlora") / GB) == 4


@pytest.mark.parametrize(
    ("kept", "expected"), [("eager", 30.58), ("flash", 6.42), ("checkpointed", 0.56)]
)
def test_gpt_rule_for_qwen3_4b(qwen3_4b: Shape, kept: Any, expected: float) -> None:
    """s b h = 5,242,880; 36 layers; 34 + 5 * 32 * 2,048 / 2,560 = 162."""
    found = gpt_activations(
        layers=qwen3_4b.layers,
        tokens=2048,
        rows=1,
        hidden=qwen3_4b.hidden,
        heads=qwen3_4b.heads,
        kept=kept,
    )
    assert round(found / GB, 2) == expected


def test_ours_for_qwen3_4b_orders_the_three_alike(lora_8b: Workload, qwen3_4b: Shape) -> None:
    """Eager keeps 6 bytes a score, 5 in the rule: 36 * 32 * 2,048^2 * 6 = 28.99 GB of it."""
    flash = replace(lora_8b, shape=qwen3_4b, longest_row=2048, trained=2048, attention="flash")
    eager = replace(flash, attention="eager")
    whole, less = (phases(work)["loss"]["activations"] for work in (eager, flash))
    scores = 36 * 32 * 2048 * 2048 * 6
    assert round(scores / GB, 2) == 28.99
    # queries and keys and values repeated to as many, for q, k, v, result and log-sum-exp
    assert whole - less - scores == 36 * 2048 * (3 * 4096 * 2 - (2 * 4096 + 2 * 1024) * 2 - 32 * 4)
    again = phases(replace(flash, checkpointing="full"))["loss"]["activations"]
    assert again < less < whole


def test_logits_of_a_full_loss(lora_8b: Workload) -> None:
    """4,096 * 128,256 logits: bf16, log-softmax, its gradient, the logits' gradient: 14 bytes."""
    full = replace(lora_8b, loss="full")
    logits = 4096 * 128256
    assert logits_bytes(full) == 14 * logits
    assert round(2 * logits / GB, 2) == 1.05
    assert round(4 * logits / GB, 2) == 2.1
    capped = replace(full, shape=replace(full.shape, logit_softcap=True))
    assert logits_bytes(capped) == 16 * logits
    true = replace(lora_8b, route="bf16_true")
    assert logits_bytes(replace(true, loss="split")) == 6 * logits
    listed = replace(true, loss="listed", loss_chunk=128)
    assert logits_bytes(listed) == 4 * logits + 4 * 128 * 128256
    assert logits_bytes(replace(true, loss="cut")) == 4096 * 4096 * 2
    # 128,256 / 4,096 = 31.3: 32 parts of 128 rows
    assert liger_chunk(4096, 128256, 4096) == 128
    assert logits_bytes(replace(true, loss="liger")) == 128 * 128256 * 2 + 4096 * 4096 * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8_000_000_000),
        ("SmolLM2-135M", 135_000_000),
        ("Qwen3-0.6B", 600_000_000),
        ("gpt2", None),
        ("model-4bit", None),
        ("Llama-3.1-8B-4bit", 8_000_000_000),
    ],
)
def test_the_parameters_that_a_name_says(name: str, expected: int | None) -> None:
    assert nominal_parameters(name) == expected


def longest(work: Workload, available: int) -> int:
    """The longest row that fits."""

    def needs(row: int) -> int:
        return sum(estimate(replace(work, longest_row=row, trained=row)).values())

    low, high = 1, 2**22
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needs(middle) <= available else (low, middle)
    assert needs(low) <= available < needs(low + 1)
    return low


def test_longest_row_of_qwen3_4b_qlora_in_24_gb(lora_8b: Workload, qwen3_4b: Shape) -> None:
    """A loss over all logits takes 14 bytes a word of 151,936 and position, 2.1 MB a token, more
    than all checkpointed activations together; without it rows are at least twice as long."""
    work = replace(lora_8b, shape=qwen3_4b, quantization="nf4", checkpointing="full")
    plain, fused = (longest(replace(work, loss=kind), 24_000_000_000) for kind in ("full", "liger"))
    kept = longest(replace(work, loss="liger", checkpointing="none"), 24_000_000_000)
    assert 14 * 151_936 == 2_127_104
    assert plain * 2 < fused
    assert kept < plain
    assert plain < 24_000_000_000 // 2_127_104


def test_paged_state_may_lie_in_host_memory(full: Workload) -> None:
    assert host_bytes(full) == 0
    paged = replace(full, optimizer="paged_adamw_32bit")
    assert host_bytes(paged) == 8 * full.shape.parameters
    assert host_bytes(replace(paged, device="cpu")) == 0


def test_experts_of_mixtral(lora_8b: Workload) -> None:
    """46.7e9 parameters, 12.9e9 of them for a token: 2 experts of 8. bitsandbytes leaves stacked
    experts alone, and PEFT casts them to fp32: QLoRA takes 180 GB of them."""
    shape = read_shape(MIXTRAL)
    assert shape.expert_weights == EXPERTS
    assert shape.parameters == 46_702_792_704
    assert shape.active_parameters == shape.parameters - EXPERTS * 6 // 8 == 12_879_925_248
    nf4 = replace(lora_8b, shape=shape, quantization="nf4")
    rest = shape.parameters - shape.linear_weights
    assert weight_bytes(nf4) == round(shape.linear_weights * 4.126953125 / 8) + 4 * rest
    assert weight_bytes(nf4) > 4 * EXPERTS
    coded = shape.linear_weights + EXPERTS
    quantised = weight_bytes(replace(nf4, quantised_experts=True))
    assert quantised == round(coded * 4.126953125 / 8) + 4 * (shape.parameters - coded)


def test_all_linear_of_hashtune_leaves_experts_out_and_peft_s_own_does_not() -> None:
    """r 16: attention 32 * 16 * (2 * 8,192 + 2 * 5,120); PEFT's own adds the router's 16 *
    (4,096 + 8), 32 * (4,096 + 28,672) for each fused pair of 8 and 16 * (4,096 + 14,336)."""
    shape = read_shape(MIXTRAL)
    attention = 32 * 16 * (2 * 8192 + 2 * 5120)
    assert lora_parameters(shape, 16, "all-linear") == attention
    experts = 16 * 4104 + 8 * 32 * (4096 + 28672) + 8 * 16 * (4096 + 14336)
    ranks = all_linear_ranks(shape, 16)
    assert lora_parameters(shape, 16, "all-linear", ranks) == attention + 32 * experts


@pytest.mark.filterwarnings("ignore:.*pattern keys did not match.*:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_peft_adapts_experts_so() -> None:
    """The same count in PEFT's own model on the meta device."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    small = {**MIXTRAL, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 2, "intermediate_size": 80, "vocab_size": 96}
    rest = {key: value for key, value in small.items() if key != "model_type"}
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **rest))
        peft = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
    trained = sum(p.numel() for p in peft.parameters() if p.requires_grad)
    shape = read_shape(small)
    assert trained == lora_parameters(shape, 4, "all-linear", all_linear_ranks(shape, 4))
