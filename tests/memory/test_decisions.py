"""Decisions: dominant bucket, changes with their savings, time and money, the refusal's words."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hashtune.errors import InputError
from hashtune.memory.activations import estimate
from hashtune.memory.closed_form import Workload
from hashtune.memory.decisions import as_lora, decide, duration
from hashtune.memory.report import describe, lines, refuse
from hashtune.memory.shapes import read_shape

ROOT = Path(__file__).parents[2]
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
    dropout=True,
    micro=4,
    longest_row=512,
    trained=200,
    masked=True,
    loss_chunk=512,
    device="cuda",
    overhead_bytes=1_500_000_000,
)
NEEDED = sum(estimate(WORK).values())


def test_fits_to_the_byte() -> None:
    assert decide(WORK, available=NEEDED).fits
    assert not decide(WORK, available=NEEDED - 1).fits


def test_changes_and_their_savings() -> None:
    one = replace(WORK, micro=1)
    decision = decide(one, available=sum(estimate(one).values()) - 5_000_000_000)
    assert decision.dominant == "weights"
    settings = [change.setting for change in decision.changes]
    assert settings[0] == "method=qlora"
    assert set(settings) == {
        "method=qlora",
        "data.max_seq_len=256",
        "batch.attention=documents",
        "method.r=8",
        "method.dropout=0.0",
        "kernels=fused",
        "activations=selective",
        "activations=full",
    }
    savings = [change.saves for change in decision.changes]
    assert savings == sorted(savings, reverse=True)
    assert min(savings) > 0
    assert decision.changes[0].enough
    assert decision.together < decision.needed - savings[0]


def test_beside_virtual_tokens_the_base_alone_is_quantised() -> None:
    """NF4 with double quantisation, as conf/quantization/nf4.yaml has it."""
    soft = replace(WORK, soft="prompt", virtual_tokens=20, targets=(), r=0, dropout=False)
    (change,) = [
        change
        for change in decide(soft, available=0).changes
        if change.setting in ("quantization=nf4", "method=qlora")
    ]
    smaller = replace(soft, quantization="nf4", double_quant=True)
    assert change.setting == "quantization=nf4"
    assert change.saves == sum(estimate(soft).values()) - sum(estimate(smaller).values())


def test_checkpointing_is_offered_and_then_offloading() -> None:
    def offered(work: Workload) -> set[str]:
        changes = decide(work, available=NEEDED).changes
        return {change.setting for change in changes if change.setting.startswith("activations")}

    assert offered(WORK) == {"activations=selective", "activations=full"}
    half = replace(WORK, checkpointing="selective")
    assert offered(half) == {"activations=full", "activations.offload=true"}
    assert offered(replace(half, device="cpu")) == {"activations=full"}
    assert offered(replace(WORK, checkpointing="full", offload=True)) == set()


def test_together_is_with_full_checkpointing() -> None:
    one = replace(WORK, micro=1, r=1, longest_row=512, quantization="nf4")
    alike = replace(one, dropout=False, longest_row=256, trained=200, checkpointing="full")
    alike = replace(alike, masked=False, by_document=True)
    assert decide(one, available=NEEDED).together == sum(estimate(alike).values())


def test_a_saving_counts_every_bucket() -> None:
    decision = decide(WORK, available=NEEDED)
    halved = {change.setting: change.saves for change in decision.changes}["batch.micro=2"]
    assert halved == NEEDED - sum(estimate(replace(WORK, micro=2)).values())


def test_what_cannot_be_made_smaller_is_not_offered() -> None:
    small = replace(
        WORK,
        **{"quantization": "nf4", "micro": 1, "r": 1, "dropout": False, "checkpointing": "full"},
        **{"longest_row": 1, "trained": 1, "masked": False, "offload": True},
    )
    assert decide(small, available=10**12).changes == []


def test_refusal_names_bucket_needed_available_and_changes() -> None:
    decision = decide(WORK, available=16_000_000_000)
    with pytest.raises(InputError) as caught:
        refuse(decision, hardware="card16")
    text = str(caught.value)
    assert f"needs {NEEDED / 1e9:.2f} GB and card16 has 16.00 GB" in text
    assert "the largest part is activations" in text or "the largest part is weights" in text
    assert "batch.micro=2 saves" in text
    assert "method=qlora saves" in text
    refuse(decide(WORK, available=NEEDED), hardware="card")


def test_refusal_when_nothing_alone_or_together_is_enough() -> None:
    with pytest.raises(InputError, match=r"together need .* still too much: a smaller base"):
        refuse(decide(WORK, available=1_000_000_000), hardware="watch")


def test_time_and_cost() -> None:
    took = duration(
        replace(WORK, targets=("q_proj",), r=1),
        tokens=3_600_000,
        context=0.0,
        peak_tflops=100.0,
        expected_utilisation=0.5,
        price_per_hour=3.0,
    )
    each = 4 * 8_030_261_248 + 6 * 32 * 8192
    assert took.flops == 3_600_000 * each
    assert took.tokens_per_second == pytest.approx(50e12 / each)
    assert took.hours == pytest.approx(1000 * each / 50e12)
    assert took.cost == pytest.approx(3.0 * took.hours)


def test_report_is_plain_and_complete() -> None:
    took = duration(
        WORK,
        tokens=1000,
        context=100.0,
        peak_tflops=100.0,
        expected_utilisation=0.5,
        price_per_hour=3.0,
    )
    decision = decide(WORK, available=80_000_000_000)
    report = describe(WORK, decision, took, currency="USD")
    assert report == describe(WORK, decision, took, currency="USD")
    assert report["fits"] is True
    assert sum(report["buckets_bytes"].values()) == NEEDED
    assert report["allocated_gb"] == round((NEEDED - 1_500_000_000) / 1e9, 3)
    assert report["model"]["trainable"] == 41_943_040
    assert report["model"]["trainable_share"] == 0.00522312
    assert report["unchunked_logits_gb"] == {"fp32": 1.051, "bf16": 0.525}
    assert lines(report)["needed"] == f"{NEEDED / 1e9:.3f} of 80.000 GB"


def test_the_way_out_of_full_fine_tuning_is_the_shipped_lora() -> None:
    shipped = yaml.safe_load((ROOT / "conf/method/lora.yaml").read_text(encoding="utf-8"))
    work = as_lora(replace(WORK, full=True, targets=(), r=0))
    assert (work.full, work.variant, work.r, work.targets) == (
        *(False, shipped["variant"], shipped["r"], shipped["targets"]),
    )
    assert work.dropout == bool(shipped["dropout"])
