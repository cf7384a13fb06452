"""The closed form: worked values, bucket by bucket."""

from dataclasses import replace

import pytest

from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import (
    LOSS_CHUNK,
    Workload,
    dequantisation_bytes,
    flops_per_token,
    full_logits_bytes,
    loss_bytes,
    static_bytes,
    weight_bytes,
)
from hashtune.memory.full import optimizer_parts
from hashtune.memory.shapes import read_shape
from hashtune.memory.workspace import QUERY_BLOCK, query_block_bytes
from hashtune.training import loss
from hashtune.training.fused import attention

SHAPE = read_shape(
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
    shape=SHAPE,
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
    trained=1000,
    masked=True,
    loss_chunk=512,
    device="cuda",
    overhead_bytes=1_500_000_000,
)
LINEAR = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
REST = 8_030_261_248 - LINEAR


def test_dora_adds_a_magnitude_for_each_output() -> None:
    """A Llama 3 block: 4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096 outputs, 32 times."""
    buckets = static_bytes(replace(WORK, variant="dora"))
    trained = 41_943_040 + 32 * 43_008
    assert (buckets["adapter"], buckets["gradients"]) == (4 * trained, 4 * trained)
    assert buckets["optimizer"] == 8 * trained
    assert static_bytes(replace(WORK, variant="rslora")) == static_bytes(WORK)


def test_muon_leaves_a_prompt_to_adamw() -> None:
    """By its name an embedding: 20 x 4,096 numbers, two moments each."""
    soft = replace(WORK, soft="prompt", virtual_tokens=20, targets=(), r=0)
    assert static_bytes(soft)["adapter"] == 4 * 20 * 4096
    assert static_bytes(replace(soft, optimizer="muon"))["optimizer"] == 8 * 20 * 4096
    assert static_bytes(replace(soft, optimizer="lion"))["optimizer"] == 4 * 20 * 4096


def test_static_buckets_of_an_8b_lora() -> None:
    assert static_bytes(WORK) == {
        "weights": 2 * 8_030_261_248,
        "adapter": 4 * 41_943_040,
        "gradients": 4 * 41_943_040,
        "master": 0,
        "optimizer": 8 * 41_943_040,
    }
    buckets = static_bytes(WORK)
    state = buckets["adapter"] + buckets["gradients"] + buckets["optimizer"]
    assert round(state / 1e9, 2) == 0.67  # 16 bytes per trainable parameter
    assert static_bytes(replace(WORK, optimizer="sgd"))["optimizer"] == 4 * 41_943_040


def test_an_8b_lora_without_master_weights() -> None:
    """2 bytes a parameter, 2 for its gradient, 4 for AdamW's moments: half of the 16."""
    buckets = static_bytes(replace(WORK, master_weights=False))
    assert (buckets["adapter"], buckets["gradients"]) == (2 * 41_943_040, 2 * 41_943_040)
    assert (buckets["master"], buckets["optimizer"]) == (0, 4 * 41_943_040)
    lion = static_bytes(replace(WORK, master_weights=False, optimizer="lion"))
    assert lion["optimizer"] == 4 * 41_943_040  # bitsandbytes keeps fp32


def test_quantised_weights() -> None:
    nf4 = replace(WORK, quantization="nf4")
    assert weight_bytes(nf4) == round(LINEAR * 4.126953125 / 8) + 4 * REST
    assert weight_bytes(replace(nf4, double_quant=False)) == round(LINEAR * 4.5 / 8) + 4 * REST
    outputs = 32 * (4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096)
    assert weight_bytes(replace(WORK, quantization="int8")) == LINEAR + 4 * outputs + 4 * REST


def test_dequantisation() -> None:
    largest, head = 4096 * 14336 * 2, 128256 * 4096 * 2
    assert dequantisation_bytes(WORK) == 0
    assert dequantisation_bytes(replace(WORK, quantization="nf4")) == largest + head
    int8 = replace(WORK, quantization="int8")
    assert dequantisation_bytes(int8) == largest + head + 4096 * 14336 * 4
    assert dequantisation_bytes(replace(WORK, quantization="nf4", precision="fp32")) == 2 * largest


def test_added_tokens_train_rows_and_need_copies_of_the_matrices() -> None:
    """The 8B shape has a head of its own: 3 tokens are 6 rows of 4,096."""
    added = replace(WORK, added_tokens=3)
    assert static_bytes(added)["adapter"] == 4 * (41_943_040 + 6 * 4096)
    buckets = estimate(added)
    assert buckets["added_tokens"] == 3 * 128256 * 4096 * 2
    quantised = estimate(replace(added, quantization="nf4"))
    assert quantised["added_tokens"] == 3 * 128256 * 4096 * 4
    assert "added_tokens" not in estimate(WORK)
    tied = replace(added, shape=replace(SHAPE, tied=True))
    assert tied.adapter_parameters == 41_943_040 + 3 * 4096


def test_loss_is_bounded_by_the_chunk() -> None:
    assert loss_bytes(WORK) == 512 * 128256 * 16 + (4096 + 1000) * 4096 * 2
    one_chunk = replace(WORK, trained=512)
    assert loss_bytes(one_chunk) == 512 * 128256 * 20 + (4096 + 512) * 4096 * 2
    assert loss_bytes(replace(WORK, micro=2)) - loss_bytes(WORK) == (4096 + 1000) * 4096 * 2


def test_logits_that_dominate() -> None:
    logits = full_logits_bytes(tokens=8192, vocab=248320)
    assert [round(logits[name] / 2**30, 2) for name in ("fp32", "bf16")] == [7.58, 3.79]


def test_flops() -> None:
    assert flops_per_token(SHAPE, adapter=0, context=0) == 4 * 8_030_261_248
    with_all = flops_per_token(SHAPE, adapter=41_943_040, context=1000.0)
    assert with_all == 4 * 8_030_261_248 + 6 * 41_943_040 + 12 * 32 * 4096 * 1000


def test_flops_of_blocks_that_are_computed_again() -> None:
    """Their forward once more: 2 per weight, 2 per adapter parameter, a third of attention."""
    settings = {"adapter": 41_943_040, "context": 1000.0}
    forward = 2 * LINEAR + 2 * 41_943_040 + 4 * 32 * 4096 * 1000
    once = flops_per_token(SHAPE, **settings)
    assert flops_per_token(SHAPE, **settings, recomputed_blocks=32) == once + forward
    assert flops_per_token(SHAPE, **settings, recomputed_blocks=16) == once + forward / 2


def test_nine_buckets_whole_bytes() -> None:
    buckets = estimate(WORK)
    assert list(buckets) == [
        *("weights", "adapter", "gradients", "master", "optimizer"),
        *("activations", "logits_loss", "dequantisation", "overhead"),
    ]
    assert all(isinstance(count, int) for count in buckets.values())
    assert buckets["overhead"] == 1_500_000_000


@pytest.mark.parametrize(
    "more",
    [
        {"micro": 2},
        {"longest_row": 5000},
        {"dropout": True},
        {"precision": "fp32"},
        {"r": 32},
    ],
)
def test_more_work_never_needs_less(more: dict[str, object]) -> None:
    assert sum(estimate(replace(WORK, **more)).values()) > sum(estimate(WORK).values())


def test_the_chunk_is_the_training_loop_s() -> None:
    assert loss.CHUNK == LOSS_CHUNK


def test_the_block_of_queries_is_the_fused_attention_s() -> None:
    assert attention.BLOCK == QUERY_BLOCK


def test_fused_attention_s_backward_has_three_tensors_of_a_block_of_queries() -> None:
    """32 heads, 128 queries, 4,096 keys, 2 bytes: 33,554,432 each. Of 100 tokens 100 by 100."""
    work = replace(WORK, masked=False, by_document=True, fused=True, device="cpu")
    assert query_block_bytes(work) == 3 * 33_554_432
    assert query_block_bytes(replace(work, longest_row=100)) == 3 * 32 * 100 * 100 * 2
    for other in ({"dropout": True}, {"fused": False}, {"device": "cuda"}):
        assert query_block_bytes(replace(work, **other)) == 0  # torch's attention


FULL = replace(WORK, full=True, targets=(), r=0)


def test_full_fine_tuning_of_8b_takes_16_bytes_a_parameter() -> None:
    """128.5 GB for 8.03B parameters, whatever autocast computes in."""
    for precision in ("fp32", "bf16"):
        buckets = static_bytes(replace(FULL, precision=precision))
        assert sum(buckets.values()) == 16 * 8_030_261_248
    assert set(buckets) == {"weights", "gradients", "master", "optimizer"}
    assert FULL.adapter_parameters == 8_030_261_248


def test_full_fine_tuning_counts_its_matrices_and_vectors_once() -> None:
    matrices, rest = optimizer_parts(SHAPE, "adamw")
    assert sum(rows * columns * count for rows, columns, count in matrices) == (
        LINEAR + 2 * 128256 * 4096
    )
    assert sum(length * count for length, count in rest) == 65 * 4096  # norms; no biases
    tables = 2 * 128256 * 4096
    muon = static_bytes(replace(FULL, optimizer="muon"))["optimizer"]
    assert muon == 4 * LINEAR + 8 * (tables + 65 * 4096)  # embedding and head are AdamW's
    small = read_shape(QWEN | {"tie_word_embeddings": True})
    counted = [r * c * n for r, c, n in optimizer_parts(small, "adamw")[0]]
    counted += [length * count for length, count in optimizer_parts(small, "adamw")[1]]
    assert sum(counted) == small.parameters


QWEN = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 100,
    "attention_bias": True,
}


def test_the_update_of_a_full_step_is_room_beyond_the_activations() -> None:
    """On CUDA torch's AdamW keeps a temporary of every tensor; bitsandbytes and a CPU do not."""
    short = replace(FULL, longest_row=8, trained=4)
    step = sum(estimate(short)[name] for name in ("activations", "logits_loss", "update"))
    assert step == 4 * 8_030_261_248
    assert estimate(replace(short, optimizer="adamw_8bit"))["update"] == 0
    assert "update" not in estimate(WORK)


def test_full_fine_tuning_is_6n() -> None:
    settings = {"adapter": 8_030_261_248, "context": 0, "full": True}
    assert flops_per_token(SHAPE, **settings) == 6 * 8_030_261_248
    again = flops_per_token(SHAPE, **settings, recomputed_blocks=32)
    assert again == 6 * 8_030_261_248 + 2 * LINEAR
