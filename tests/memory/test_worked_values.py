"""The plan gives the worked values of the reference, each with its hand computation.

GB are 1e9 bytes. Where ours differ from the reference's, the test says by what and why.
"""

from dataclasses import replace

import pytest

from hashtune.memory.activations import estimate, saved_bytes
from hashtune.memory.closed_form import (
    NF4_BITS,
    Workload,
    flops_per_token,
    full_logits_bytes,
    loss_bytes,
    static_bytes,
    weight_bytes,
)
from hashtune.memory.decisions import decide, duration
from hashtune.memory.optimizer_state import optimizer_bytes
from hashtune.memory.shapes import Linear, Shape, lora_matrices, lora_parameters, read_shape

GB, GIB = 1e9, 2**30
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
QWEN3_4B = read_shape(
    {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
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
    return replace(LLAMA_8B, hidden=0, vocab=0, block_norms=0, linears=(matrix,))


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
        assert not decide(replace(FULL, optimizer=optimizer), available=80_000_000_000).fits
    assert decide(replace(LORA, checkpointing="full"), available=80_000_000_000).fits


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


@pytest.mark.parametrize(
    ("tokens", "vocab", "fp32", "bf16"),
    [
        (8192, 151_936, 4.98, 2.49),  # 1,244,659,712 logits
        (4096, 128_256, 2.10, 1.05),  # 525,336,576
    ],
)
def test_logits_that_are_never_there(tokens: int, vocab: int, fp32: float, bf16: float) -> None:
    logits = full_logits_bytes(tokens=tokens, vocab=vocab)
    assert [round(logits[name] / GB, 2) for name in ("fp32", "bf16")] == [fp32, bf16]


def test_the_loss_of_4096_tokens_takes_4_gb_at_once_and_ours_a_quarter_of_it() -> None:
    """fp32 logits and a gradient of their size: 2 * 2.10. Ours: 512 * 128,256 * 4 copies * 4 bytes
    = 1.05, whatever the length of the row, and 2 * 4,096 states of 8,192 bytes, 0.067."""
    assert 2 * full_logits_bytes(tokens=4096, vocab=128_256)["fp32"] > 4 * GB
    assert loss_bytes(LORA) == 512 * 128_256 * 16 + 2 * 4096 * 4096 * 2
    assert round(loss_bytes(LORA) / GB, 2) == 1.12
    longer = loss_bytes(replace(LORA, longest_row=8192, trained=8192)) - loss_bytes(LORA)
    assert longer == 2 * 4096 * 4096 * 2  # states alone


def test_inputs_of_checkpointed_blocks_are_one_gib() -> None:
    """32 blocks * 4,096 tokens * 4,096 * 2 bytes. Beside them the last norm keeps its fp32 input
    and a factor for each token."""
    kept = saved_bytes(replace(LORA, checkpointing="full"))
    assert kept - 4096 * (4096 + 1) * 4 == GIB


def test_checkpointed_qwen3_4b_keeps_2_sbh_a_layer() -> None:
    """s b h = 2,048 * 1 * 2,560 = 5,242,880: 36 * 2 of it is 0.377 GB, below 1 GB as a whole."""
    work = replace(LORA, shape=QWEN3_4B, longest_row=2048, trained=2048, checkpointing="full")
    sbh = 2048 * 2560
    assert sbh == 5_242_880
    assert saved_bytes(work) - 2048 * (2560 + 1) * 4 == 36 * 2 * sbh
    assert round(36 * 2 * sbh / GB, 3) == 0.377
    assert estimate(work)["activations"] < GB


def test_a_block_of_qwen3_4b_by_hand() -> None:
    """The reference counts 34 s b h a layer for a GPT block (4h GELU, all heads, 16 bits) and
    gives 30 % on either side. Ours is 68 s b h: what a LoRA step of this very block keeps.

        two norms in fp32          2 * (2,560 * 4 + 4)               20,488
        norms of q and k in fp32   (32 + 8) * (128 * 4 + 4)          20,640
        attention                  (2 * 4,096 + 2 * 1,024) * 2 + 32 * 4  20,608
        gated MLP                  3 * 9,728 * 2                     58,368
        bf16 inputs of LoRA A      (3 + 2) * 2,560 * 2 + 4,096 * 2 + 9,728 * 2  53,248
        inputs of LoRA B           7 * 16 * 2                           224

    Beside the blocks: LoRA's 33,030,144 parameters as autocast casts them, and the rotary table.
    """
    work = replace(LORA, shape=QWEN3_4B, longest_row=2048, trained=2048)
    block = 20_488 + 20_640 + 20_608 + 58_368 + 53_248 + 224
    parameters = 36 * 16 * (2 * (2560 + 4096) + 2 * (2560 + 1024) + 3 * (2560 + 9728))
    assert lora_parameters(QWEN3_4B, 16, "all-linear") == parameters == 33_030_144
    beside = 2 * parameters + 2048 * 2 * 128 * 2
    assert saved_bytes(work) == 36 * 2048 * block + beside
    assert round(block / 2560) == 68


def test_attention_without_scores_is_linear_in_the_length() -> None:
    """No 5 a s^2 b: that of 2,048 tokens would be 5 * 32 * 2,048 / 2,560 = 128 s b h a layer."""
    assert 5 * 32 * 2048 / 2560 == 128
    short = replace(LORA, shape=QWEN3_4B, longest_row=2048, trained=1)
    twice = replace(short, longest_row=4096)
    cast = 2 * 33_030_144  # of LoRA's matrices, however long the row
    assert saved_bytes(twice) - cast == 2 * (saved_bytes(short) - cast)


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
