"""The arithmetic and the checks of the ablation, and one small run of it."""

import sys
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def ablation(script) -> ModuleType:
    """The script as a module."""
    return script("ablation")


def result(loss: float = 2.0, norm: float = 0.5, last: float = 1.5) -> dict:
    """What a child prints of its losses."""
    return {"first_loss": loss, "first_norm": norm, "last_loss": last}


def test_mfu_is_that_of_the_reference(ablation):
    # 8B, 3,000 tokens/s, full fine-tuning, 989 TFLOP/s: 6 * 8e9 * 3000 / 989e12
    assert ablation.mfu(8_000_000_000, "full", 3000.0, 989e12) == pytest.approx(0.1456, abs=5e-5)
    # LoRA has no gradients of the base's weights: 4 instead of 6
    assert ablation.mfu(8_000_000_000, "lora", 3000.0, 989e12) == pytest.approx(0.0971, abs=5e-5)


def test_equal_losses_and_norms_have_no_fault(ablation):
    results = {"plain": [result(), result()], "packing": [result(2.00001, 0.50004)] * 2}
    assert ablation.faults(results, "fp32", strict=True) == []


def test_a_loss_or_a_norm_that_differs_is_named(ablation):
    results = {
        "plain": [result()],
        "packing": [result(loss=2.0001)],
        "checkpointing": [result(norm=0.5001)],
        "compile": [result(loss=float("nan"))],
    }
    assert ablation.faults(results, "fp32", strict=True) == [
        "packing: first_loss 2.0001, plain has 2",
        "checkpointing: first_norm 0.5001, plain has 0.5",
        "compile: first_loss nan, plain has 2",
    ]


def test_bf16_has_wider_tolerances(ablation):
    results = {"plain": [result()], "packing": [result(2.009, 0.52)]}
    assert ablation.faults(results, "bf16", strict=True) == []
    assert len(ablation.faults(results, "fp32", strict=True)) == 2


def test_other_bits_in_another_round_are_a_fault_under_strict(ablation):
    results = {"plain": [result(), result(last=1.5000001)]}
    assert ablation.faults(results, "fp32", strict=True) == ["plain: rounds differ in last_loss"]
    assert ablation.faults(results, "fp32", strict=False) == []


def test_documents_are_seeded_and_fit_the_row(ablation):
    documents = ablation.documents(count=50, seq_len=64, vocabulary=100, seed=0)
    assert documents == ablation.documents(count=50, seq_len=64, vocabulary=100, seed=0)
    lengths = [len(document["input_ids"]) for document in documents]
    assert (min(lengths) >= 8, max(lengths) <= 64) == (True, True)
    assert {len(document["labels"]) for document in documents} == set(lengths)
    for document in documents:
        half = len(document["input_ids"]) // 2
        assert document["labels"] == [-100] * half + document["input_ids"][half:]


@pytest.mark.parametrize("name", ["chekpointing", "plain+packing", "packing+packing", ""])
def test_a_variant_that_is_no_set_of_switches_is_refused(ablation, name):
    with pytest.raises(ValueError, match="checkpointing, packing, documents, compile, full-logits"):
        ablation.switches(name)


def test_a_variant_is_a_set_of_switches(ablation):
    assert ablation.switches("plain") == frozenset()
    assert ablation.switches("packing+compile") == {"packing", "compile"}


def test_a_small_run_prints_a_line_for_each_variant_and_agrees(ablation, monkeypatch, capsys):
    sizes = {"hidden": 32, "layers": 2, "intermediate": 64, "vocabulary": 64, "seq-len": 32}
    sizes |= {"documents": 4, "micro": 2, "steps": 1, "warmup": 1, "rounds": 1, "threads": 1}
    options = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
    on = "checkpointing+packing+documents+full-logits"  # compilation takes most of a minute
    monkeypatch.setattr(
        sys, "argv", ["ablation.py", *options, "--precision", "fp32", "--variants", on]
    )
    assert ablation.main() == 0
    *_, plain, other, verdict = capsys.readouterr().out.splitlines()
    assert (plain.split()[0], other.split()[0]) == ("plain", on)
    assert all(f" {unit} " in plain for unit in ("s a step", "tokens/s", "GB", "MFU", "loss"))
    assert verdict == "losses and gradient norms agree"
