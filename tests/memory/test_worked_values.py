"""The plan gives the reference's worked values of what is there before a token arrives, of FLOPs
and of tokens, each with its hand computation; those of a step: test_worked_steps.py.

GB are 1e9 bytes. Where ours differ from the reference's, the test says by what and why.
"""

from dataclasses import replace

import pytest

from hashtune.memory.closed_form import (
    NF4_BITS,
    Workload,
    flops_per_token,
    static_bytes,
    weight_bytes,
)
from hashtune.memory.cost import duration
from hashtune.memory.limits import needed_bytes
from hashtune.memory.optimizer_state import optimizer_bytes
from hashtune.memory.shapes import Linear, Shape, lora_matrices, lora_parameters, read_shape
from hashtune.packing.stats import step_stats
from hashtune.packing.steps import plan_steps
from hashtune.records import Row

GB = 1e9
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
LORA = Workload(
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
    longest_row=4096,
    trained=4096,
    masked=False,
    loss_chunk=512,
    device="cuda",
    overhead_bytes=1_500_000_000,
)
FULL = replace(LORA, full=True, targets=(), r=0)
ADAPTER = 41_943_040  # 32 * 16 * (2 * 8,192 + 2 * 5,120 + 3 * 18,432)


def nominal(billions: int) -> Shape:
    """So many 1e9 parameters, neither more nor less: 32 blocks of one matrix, and nothing else."""
    matrix = Linear("self_attn.q_proj", 15_625, billions * 2_000, bias=False)
    bare = replace(LLAMA_8B, hidden=0, vocab=0, norms=(), linears=(matrix,))
    return replace(bare, final_norm=replace(LLAMA_8B.final_norm, width=0))


def state(work: Workload) -> float:
    """GB before a token arrives."""
    return sum(static_bytes(work).values()) / GB


def test_full_fine_tuning_of_8b_and_7b() -> None:
    """4 + 4 + 4 + 4 bytes (weight, gradient, two moments) of 8e9 and of 7e9 parameters."""
    assert nominal(8).parameters == 8_000_000_000
    assert state(replace(FULL, shape=nominal(8))) == 128.0
    assert state(replace(FULL, shape=nominal(7))) == 112.0
    assert round(state(FULL), 1) == 128.5  # 16 * 8.03


def test_a_buffer_for_accumulation_would_make_it_144() -> None:
    """18 bytes: the reference's other route adds the micro-batches up in 2 bytes of their own. Ours
    are added where they stay, in the fp32 gradient, so more of them take nothing."""
    work = replace(FULL, shape=nominal(8))
    assert static_bytes(work)["gradients"] == 4 * 8_000_000_000
    assert state(work) + 2 * 8e9 / GB == 144.0
    assert state(replace(work, micro=4)) == state(work)


def test_8_bit_moments_bring_8b_to_about_80_gb_which_is_no_80_gb_card() -> None:
    """64 GB of moments become 2 bytes and two scales a parameter. The reference has blocks of
    2,048 (16.03 GB); bitsandbytes 0.50 has 256: 2 * (1 + 4 / 256) * 8e9 = 16.25 GB."""
    work = replace(FULL, shape=nominal(8), optimizer="adamw_8bit")
    moments = static_bytes(work)["optimizer"] / GB
    assert static_bytes(replace(work, optimizer="adamw"))["optimizer"] / GB == 64.0
    assert round(moments, 2) == 16.25
    assert round(state(work), 2) == 80.25
    for optimizer in ("adamw", "adamw_8bit"):
        assert needed_bytes(replace(FULL, optimizer=optimizer)) > 80_000_000_000
    assert needed_bytes(replace(LORA, checkpointing="full")) <= 80_000_000_000


def test_lora_of_8b_is_16_67_gb() -> None:
    """16.0 of the base, and 16 bytes for each of 41,943,040 trained parameters: 0.671."""
    assert lora_parameters(LLAMA_8B, 16, "all-linear") == ADAPTER
    buckets = static_bytes(LORA)
    adapter = sum(buckets.values()) - buckets["weights"]
    assert adapter == 16 * ADAPTER
    assert round(adapter / GB, 3) == 0.671
    base = weight_bytes(replace(LORA, shape=nominal(8)))
    assert base == 16_000_000_000
    assert round((base + adapter) / GB, 2) == 16.67
    # of all 8,030,261,248 parameters, 30,261,248 more: 0.06 GB
    assert round(state(LORA) - 2 * 30_261_248 / GB, 2) == 16.67
    assert round(state(LORA), 2) == 16.73
    assert round(100 * ADAPTER / LLAMA_8B.parameters, 1) == 0.5  # percent that is trained


def test_4_127_bits() -> None:
    """4 bits, 8 for each 64 weights, 32 for each 64 * 256: 4 + 0.125 + 0.001953 = 4.126953."""
    assert NF4_BITS[True] == 4.126953125
    assert round(NF4_BITS[True], 3) == 4.127
    assert round(NF4_BITS[True] / 8, 3) == 0.516  # bytes
    assert NF4_BITS[False] == 4.5


@pytest.mark.parametrize("double_quant", [True, False])
def test_bitsandbytes_stores_so_many_bits(double_quant: bool) -> None:
    """1,024 * 1,024 weights: 524,288 bytes of codes; 16,384 scales of a byte, with 64 fp32 ones for
    256 of them each, or 16,384 fp32 ones. The tables and the mean of the scales are the same size
    for every matrix."""
    import torch
    from bitsandbytes.functional import quantize_4bit

    packed, state = quantize_4bit(
        torch.linspace(-1, 1, 2**20).view(1024, 1024),
        blocksize=64,
        compress_statistics=double_quant,
        quant_type="nf4",
    )
    parts = [packed, state.absmax, *([state.state2.absmax] if double_quant else [])]
    stored = sum(part.numel() * part.element_size() for part in parts)
    assert stored == 524_288 + (16_384 + 64 * 4 if double_quant else 16_384 * 4)
    assert 8 * stored / 2**20 == NF4_BITS[double_quant]


def test_qlora_of_8b_is_4_798_gb_when_everything_is_quantised() -> None:
    """8e9 * 4.127 / 8 = 4.127 GB, and the adapter's 0.671."""
    base = weight_bytes(replace(LORA, shape=nominal(8), quantization="nf4"))
    assert round(base / GB, 3) == 4.127
    assert round((base + 16 * ADAPTER) / GB, 3) == 4.798


def test_qlora_of_8b_as_it_is_loaded() -> None:
    """Embedding, head and norms stay unquantised: 6,979,321,856 weights in NF4 are 3.600 GB. The
    other 1,050,939,392 are 2.102 GB in bf16, which makes the reference's 5 to 6 GB; PEFT's
    prepare_model_for_kbit_training casts them to fp32, 4.204 GB, so ours is 7.804."""
    quantised, rest = 6_979_321_856, 1_050_939_392
    assert LLAMA_8B.linear_weights == quantised
    assert LLAMA_8B.parameters - quantised == rest
    assert round(quantised * NF4_BITS[True] / 8 / GB, 3) == 3.600
    base = weight_bytes(replace(LORA, quantization="nf4"))
    assert round(base / GB, 3) == 7.804
    assert 5.0 < (base - 2 * rest) / GB < 6.0
    assert round((base - 2 * rest) / GB, 3) == 5.702


def test_8_bit_moments_hardly_matter_for_lora() -> None:
    """8 * 41.9M = 0.34 GB; as codes 2 * (1 + 4 / 256) * 41.9M = 0.085: a quarter of a GB less."""
    matrices = lora_matrices(LLAMA_8B, 16, "all-linear")
    plain, coded = (optimizer_bytes(name, matrices) for name in ("adamw", "adamw_8bit"))
    assert round(plain / GB, 2) == 0.34
    assert round(coded / GB, 3) == 0.085
    assert round((plain - coded) / GB, 2) == 0.25
    assert (4 * ADAPTER + plain) / GB < 1.0  # what a checkpoint holds: 0.50


def test_lion_keeps_half_of_adam_s_state() -> None:
    adamw, lion = (
        static_bytes(replace(FULL, optimizer=name))["optimizer"] for name in ("adamw", "lion")
    )
    assert adamw == 2 * lion


def test_checkpointing_costs_a_third_of_a_full_step() -> None:
    """F + 2F becomes 2F + 2F: 6 N and 8 N, where all weights are in the blocks."""
    blocks = nominal(8)
    settings = {"adapter": blocks.parameters, "context": 0.0, "full": True}
    once = flops_per_token(blocks, **settings)
    assert once == 6 * 8e9
    again = flops_per_token(blocks, **settings, recomputed_blocks=32)
    assert again == 8 * 8e9
    assert round(100 * (again / once - 1)) == 33


def test_lora_with_checkpointing_is_6n_and_15_percent_of_an_h100() -> None:
    """2 N forward, 2 N back through frozen weights, 2 N again: 4.8e10 of 8e9, and 3,000 tokens a
    second are 144 of 989 TFLOP/s."""
    each = flops_per_token(nominal(8), adapter=0, context=0.0, recomputed_blocks=32)
    assert each == 4.8e10
    assert each * 3000 == 144e12
    assert round(100 * each * 3000 / 989e12) == 15


@pytest.mark.parametrize(("length", "tokens"), [(300, 4_800), (4_000, 64_000)])
def test_16_sequences_are_a_batch_of_very_different_tokens(length: int, tokens: int) -> None:
    """Micro-batch 2, accumulation 8, one rank: 16 rows a step, and what a step sees is reported in
    tokens, since those decide the noise of a gradient."""
    ids = [1] * length
    rows = [Row(n, [str(n)], [length], ids, [-100, *ids[1:]]) for n in range(32)]
    steps = plan_steps(rows, rows_per_step=2 * 8 * 1, epochs=1, max_steps=None, data_seed=1)
    report = step_stats(steps, rows_per_step=16)
    assert report["steps"] == 2
    assert report["tokens_per_step"] == {"min": tokens, "mean": tokens, "max": tokens}
    assert report["trained_tokens_per_step"]["mean"] == tokens - 16


def test_the_plan_s_speed_is_that_share_read_backwards() -> None:
    """At 14.5602 % of an H100, full fine-tuning of 8e9 sees 3,000 tokens a second: 48e9 each."""
    time = duration(
        replace(FULL, shape=nominal(8)),
        tokens=10_800_000,
        context=0.0,
        peak_tflops=989.0,
        expected_utilisation=144 / 989,
        price_per_hour=2.0,
    )
    assert time.tokens_per_second == pytest.approx(3000)
    assert (time.hours, time.cost) == pytest.approx((1.0, 2.0))
