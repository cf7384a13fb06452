"""Slowdowns: FLOPs over the peak in use, and the bytes of dequantisation over the bandwidth."""

from dataclasses import replace

import pytest

from hashtune.memory.closed_form import Workload
from hashtune.memory.cost import measured_run
from hashtune.memory.shapes import read_shape
from hashtune.memory.slowdown import compare, seconds_per_token, unpacked_bytes
from hashtune.spec.schema import Hardware

LLAMA_8B = read_shape(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
)
WORK = Workload(
    shape=LLAMA_8B,
    quantization="none",
    double_quant=True,
    precision="bf16",
    optimizer="adamw",
    variant="lora",
    r=16,
    targets="all-linear",
    dropout=False,
    micro=1,
    longest_row=1024,
    trained=1024,
    masked=False,
    loss_chunk=512,
    device="cuda",
    overhead_bytes=0,
)
CARD = Hardware.model_validate(
    {
        "name": "card",
        "device": "cuda",
        "memory_gb": 80.0,
        "overhead_gb": 1.5,
        "peak_tflops": {"fp32": 50.0, "tf32": None, "bf16": 100.0, "fp16": 100.0},
        "bandwidth_gbs": 1000.0,
        "expected_utilisation": 0.5,
        "price_per_hour": 3.0,
        "currency": "USD",
    }
)
LINEAR = (
    6_979_321_856  # 32 x 218,103,808: q and o 4096^2, k and v 4096 x 1024, MLP 3 x 4096 x 14336
)
ADAPTER = 41_943_040


def test_full_checkpointing_computes_the_blocks_once_more() -> None:
    """4 N + 6 A, and 2 for each parameter of the blocks again; attention 12 and 4 L d T at 0."""
    once = 4 * 8_030_261_248 + 6 * ADAPTER
    found = compare(
        *(WORK, replace(WORK, checkpointing="full")),
        hardware=CARD,
        precision="bf16",
        context=0.0,
    )
    assert found.factor == pytest.approx((once + 2 * (LINEAR + ADAPTER)) / once)
    assert round(found.factor or 0, 3) == 1.434
    assert found.source == "FLOPs"


def test_selective_checkpointing_is_half_of_that() -> None:
    factors = [
        compare(WORK, replace(WORK, checkpointing=kind), hardware=CARD, precision="bf16", context=9)
        for kind in ("selective", "full")
    ]
    half, whole = (found.factor or 0 for found in factors)
    assert half - 1 == pytest.approx((whole - 1) / 2)


def test_nf4_is_read_and_written_for_each_product_of_a_micro_batch() -> None:
    """6.98e9 weights x (4.127 bits + 2 bytes) x 2 passes = 35.1 GB: 35 ms at 1,000 GB/s, beside
    1,024 tokens of 0.649 ms at 50 TFLOP/s."""
    quantised = replace(WORK, quantization="nf4")
    assert unpacked_bytes(quantised) == pytest.approx(LINEAR * (4.127 / 8 + 2) * 2, rel=1e-4)
    plain = (4 * 8_030_261_248 + 6 * ADAPTER) / 50e12
    token = seconds_per_token(quantised, hardware=CARD, precision="bf16", context=0.0)
    assert token == pytest.approx(plain + unpacked_bytes(quantised) / 1e12 / 1024)
    found = compare(WORK, quantised, hardware=CARD, precision="bf16", context=0.0)
    assert found.factor == pytest.approx((token or 0) / plain)
    assert found.source == "FLOPs, dequantisation"


def test_fewer_rows_at_a_time_unpack_more_often() -> None:
    two, one = (replace(WORK, quantization="nf4", micro=n) for n in (2, 1))
    assert compare(replace(WORK, micro=2), WORK, hardware=CARD, precision="bf16", context=9) == (
        compare(WORK, WORK, hardware=CARD, precision="bf16", context=9)
    )
    factor = compare(two, one, hardware=CARD, precision="bf16", context=9).factor
    assert factor is not None
    assert factor > 1.01


def test_another_precision_has_another_peak() -> None:
    fp32 = replace(WORK, precision="fp32")
    found = compare(fp32, WORK, hardware=CARD, precision="fp32", context=0.0)
    assert found.factor == pytest.approx(0.5)
    assert found.source == "FLOPs, peak"


def test_what_is_not_known_is_not_made_up() -> None:
    slow = CARD.model_copy(update={"bandwidth_gbs": None})
    quantised = replace(WORK, quantization="nf4")
    found = compare(WORK, quantised, hardware=slow, precision="bf16", context=0.0)
    assert (found.factor, found.source) == (
        *(None, "conf/hardware has no bandwidth or peak of card for it"),
    )
    int8 = replace(WORK, quantization="int8")
    assert compare(WORK, int8, hardware=CARD, precision="bf16", context=0.0).factor is None


def test_a_token_passes_through_some_experts_only() -> None:
    """Mixtral has 8, a token sees 2: 46.7e9 parameters, 12.9e9 active."""
    mixtral = read_shape(
        {
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
    )
    experts = 32 * 3 * 4096 * 14336
    assert mixtral.active_parameters == 46_702_792_704 - 6 * experts
    work = replace(WORK, shape=mixtral, targets=("q_proj",), r=1)
    token = seconds_per_token(work, hardware=CARD, precision="bf16", context=0.0)
    assert token == pytest.approx((4 * mixtral.active_parameters + 6 * 32 * 8192) / 50e12)
    again = replace(work, checkpointing="full")
    more = (seconds_per_token(again, hardware=CARD, precision="bf16", context=0.0) or 0) * 50e12
    blocks = mixtral.linear_weights + 2 * experts + 32 * 8192
    assert more == pytest.approx((token or 0) * 50e12 + 2 * blocks)


def test_a_run_on_record_corrects_the_assumed_share() -> None:
    """9e15 FLOPs at 50 % of 10 TFLOP/s are 1,800 s."""
    machine = {"device": "H100", "hfu": 0.5, "peak_tflops": 10.0}
    measured = measured_run(machine, peak_tflops=10.0)
    assert measured is not None
    assert measured.hours(9e15) == pytest.approx(0.5)
    assert measured_run(None, peak_tflops=10.0) is None
    assert measured_run(machine | {"hfu": None}, peak_tflops=10.0) is None
    assert measured_run(machine, peak_tflops=20.0) is None  # another precision or machine
