"""Decisions: dominant bucket, changes with their savings, time and money, the refusal's words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hashtune.errors import InputError
from hashtune.memory import tables
from hashtune.memory.activations import estimate
from hashtune.memory.cards import Card, every_card
from hashtune.memory.changes import Lost, as_lora
from hashtune.memory.closed_form import Workload
from hashtune.memory.cost import Duration, duration
from hashtune.memory.decisions import Decision, Surroundings, decide, first_path
from hashtune.memory.report import describe, refuse
from hashtune.memory.shapes import read_shape
from hashtune.spec.schema import Hardware

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


def around(available: int, **more: Any) -> Surroundings:
    """A card with so many bytes."""
    card = CARD.model_copy(update={"memory_gb": available / 1e9})
    return Surroundings(card, "bf16", context=512.0, **more)


def weigh(work: Workload, *, available: int, **more: Any) -> Decision:
    return decide(work, around(available, **more))


def test_fits_to_the_byte() -> None:
    assert weigh(WORK, available=NEEDED).fits
    assert not weigh(WORK, available=NEEDED - 1).fits


def test_changes_and_their_savings() -> None:
    one = replace(WORK, micro=1)
    decision = weigh(one, available=sum(estimate(one).values()) - 5_000_000_000)
    assert decision.dominant == "weights"
    assert {change.setting for change in decision.changes} == {
        "method=qlora",
        "data.max_seq_len=256",
        "batch.attention=documents",
        "method.r=8",
        "method.dropout=0.0",
        "optim=adamw_8bit",
        "kernels=fused",
        "activations=selective",
        "activations=full",
    }
    assert min(change.saves for change in decision.changes) > 0
    assert decision.together < decision.needed - max(change.saves for change in decision.changes)


def test_what_is_enough_comes_first_then_what_keeps_the_run_the_same() -> None:
    """5 GB are missing: QLoRA saves 5.7, each other change less. The rest by kind and saving."""
    one = replace(WORK, micro=1)
    changes = weigh(one, available=sum(estimate(one).values()) - 5_000_000_000).changes
    assert (changes[0].setting, changes[0].enough) == ("method=qlora", True)
    rest = changes[1:]
    assert not any(change.enough for change in rest)
    kinds = [change.kind for change in rest]
    assert kinds == sorted(kinds, key=["same", "other", "less", "data"].index)
    same = [change.saves for change in rest if change.kind == "same"]
    assert same == sorted(same, reverse=True)


def test_of_two_that_are_enough_the_quicker_one_is_first() -> None:
    """Selective checkpointing computes half of what full does again."""
    settings = [change.setting for change in weigh(WORK, available=NEEDED - 1000).changes]
    assert settings.index("activations=selective") < settings.index("activations=full")
    assert settings[0] == "batch.micro=2 batch.grad_accum=2"  # no FLOP more


def test_the_path_is_enough_and_its_first_step_is_the_first_change() -> None:
    available = 24_000_000_000
    path, after = first_path(WORK, around(available, grad_accum=4))
    assert sum(estimate(after).values()) <= available
    decision = weigh(WORK, available=available, grad_accum=4)
    assert path == decision.path
    assert path[0] in decision.changes[0].setting
    assert first_path(WORK, around(NEEDED)) == ([], WORK)
    assert first_path(WORK, around(1_000_000_000)) == ([], WORK)


def test_halving_twice_keeps_one_setting_of_each_name() -> None:
    """All else is as small as it gets: 8 rows become 1, and 2 x 8 = 16 of them."""
    small = replace(WORK, quantization="nf4", dropout=False, masked=False, by_document=True)
    small = replace(small, fused=True, checkpointing="full", offload=True, optimizer="adamw_8bit")
    small = replace(small, micro=8, longest_row=4096, trained=4096, r=1)
    alone = replace(small, micro=1)
    path, after = first_path(small, around(sum(estimate(alone).values()), grad_accum=2))
    assert after == alone
    assert path == ["batch.micro=1", "batch.grad_accum=16"]


def test_an_odd_micro_batch_keeps_the_effective_batch() -> None:
    odd = replace(WORK, micro=9)
    settings = [c.setting for c in weigh(odd, available=NEEDED, grad_accum=2).changes]
    assert "batch.micro=3 batch.grad_accum=6" in settings


def test_a_shorter_row_is_the_longest_that_fits_and_says_what_it_loses() -> None:
    """Documents of 100, 100, 200 and 512 tokens: rows that drop the last lose 512 of 912."""
    one = replace(WORK, micro=1, fused=True)
    available = sum(estimate(replace(one, longest_row=300)).values())
    decision = weigh(one, available=available, lengths=[100, 100, 200, 512])
    assert decision.longest_row == 300
    (change,) = [change for change in decision.changes if change.kind == "data"]
    assert change.setting == "data.max_seq_len=300"
    assert change.enough
    assert change.lost == Lost(examples=1, of=4, tokens=512 / 912)


def test_beside_virtual_tokens_the_base_alone_is_quantised() -> None:
    """NF4 with double quantisation, as conf/quantization/nf4.yaml has it."""
    soft = replace(WORK, soft="prompt", virtual_tokens=20, targets=(), r=0, dropout=False)
    (change,) = [
        change
        for change in weigh(soft, available=0).changes
        if change.setting in ("quantization=nf4", "method=qlora")
    ]
    smaller = replace(soft, quantization="nf4", double_quant=True)
    assert change.setting == "quantization=nf4"
    assert change.saves == sum(estimate(soft).values()) - sum(estimate(smaller).values())


def test_checkpointing_is_offered_and_then_offloading() -> None:
    def offered(work: Workload) -> set[str]:
        changes = weigh(work, available=NEEDED).changes
        return {change.setting for change in changes if change.setting.startswith("activations")}

    assert offered(WORK) == {"activations=selective", "activations=full"}
    half = replace(WORK, checkpointing="selective")
    assert offered(half) == {"activations=full", "activations.offload=true"}
    assert offered(replace(half, device="cpu")) == {"activations=full"}
    assert offered(replace(WORK, checkpointing="full", offload=True)) == set()


def test_together_is_with_full_checkpointing() -> None:
    one = replace(WORK, micro=1, r=1, longest_row=512, quantization="nf4", optimizer="lion")
    alike = replace(one, dropout=False, longest_row=256, trained=200, checkpointing="full")
    alike = replace(alike, masked=False, by_document=True)
    assert weigh(one, available=NEEDED).together == sum(estimate(alike).values())


def test_a_saving_counts_every_bucket() -> None:
    decision = weigh(WORK, available=NEEDED)
    savings = {change.setting: change.saves for change in decision.changes}
    halved = savings["batch.micro=2 batch.grad_accum=2"]
    assert halved == NEEDED - sum(estimate(replace(WORK, micro=2)).values())


def test_what_cannot_be_made_smaller_is_not_offered() -> None:
    small = replace(
        WORK,
        **{"quantization": "nf4", "micro": 1, "r": 1, "dropout": False, "checkpointing": "full"},
        **{"optimizer": "lion", "fused": True},
        **{"longest_row": 1, "trained": 1, "masked": False, "offload": True},
    )
    assert weigh(small, available=10**12).changes == []


def test_refusal_names_bucket_needed_available_and_changes() -> None:
    decision = weigh(WORK, available=16_000_000_000)
    with pytest.raises(InputError) as caught:
        refuse(decision, hardware="card16")
    text = str(caught.value)
    assert f"needs {NEEDED / 1e9:.2f} GB and card16 has 16.00 GB" in text
    assert "the largest part is activations" in text or "the largest part is weights" in text
    assert "first batch.micro=2 batch.grad_accum=2 saves" in text or "enough together: " in text
    assert "batch.micro=2 batch.grad_accum=2 saves" in text
    assert "method=qlora saves" in text
    refuse(weigh(WORK, available=NEEDED), hardware="card")


def test_refusal_when_nothing_alone_or_together_is_enough() -> None:
    with pytest.raises(InputError, match=r"together need .* still too much: a smaller base"):
        refuse(weigh(WORK, available=1_000_000_000), hardware="watch")


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


def card_of(work: Workload, took: Duration) -> Card:
    (card,) = every_card(work, around(80_000_000_000), [CARD], tokens=took.tokens)
    return card


def test_report_is_plain_and_complete() -> None:
    took = duration(
        WORK,
        tokens=1000,
        context=512.0,
        peak_tflops=100.0,
        expected_utilisation=0.5,
        price_per_hour=3.0,
    )
    decision = weigh(WORK, available=80_000_000_000)
    cards = [card_of(WORK, took)]
    report = describe(WORK, decision, took, cards, currency="USD")
    assert report == describe(WORK, decision, took, cards, currency="USD")
    assert report["cheapest_card"] == "card"
    assert report["cards"][0]["cost"] == report["cost"]
    assert report["fits"] is True
    assert sum(report["buckets_bytes"].values()) == NEEDED
    assert report["allocated_gb"] == round((NEEDED - 1_500_000_000) / 1e9, 3)
    assert report["model"]["trainable"] == 41_943_040
    assert report["model"]["trainable_share"] == 0.00522312
    assert report["unchunked_logits_gb"] == {"fp32": 1.051, "bf16": 0.525}
    assert tables.facts(report)["needed"] == f"{NEEDED / 1e9:.3f} of 80.000 GB"


def test_the_way_out_of_full_fine_tuning_is_the_shipped_lora() -> None:
    shipped = yaml.safe_load((ROOT / "conf/method/lora.yaml").read_text(encoding="utf-8"))
    work = as_lora(replace(WORK, full=True, targets=(), r=0))
    assert (work.full, work.variant, work.r, work.targets) == (
        *(False, shipped["variant"], shipped["r"], shipped["targets"]),
    )
    assert work.dropout == bool(shipped["dropout"])
