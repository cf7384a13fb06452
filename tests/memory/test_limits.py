"""The longest row and the largest micro-batch that fit, against a scan of all of them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.memory import limits
from hashtune.memory.closed_form import Workload
from hashtune.memory.limits import largest_micro, longest_row, needed_bytes, with_row
from hashtune.memory.shapes import read_shape

TINY = read_shape(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 1000,
    }
)
WORK = Workload(
    shape=TINY,
    quantization="none",
    double_quant=False,
    precision="bf16",
    optimizer="adamw",
    variant="lora",
    r=4,
    targets="all-linear",
    dropout=False,
    micro=1,
    longest_row=40,
    trained=20,
    masked=False,
    loss_chunk=32,
    device="cuda",
    overhead_bytes=1000,
)
MOST = 120
workloads = st.builds(
    lambda **changes: replace(WORK, **changes),
    micro=st.integers(1, 5),
    longest_row=st.integers(20, 60),
    trained=st.integers(1, 20),
    quantization=st.sampled_from(["none", "nf4"]),
    checkpointing=st.sampled_from(["none", "selective", "full"]),
    masked=st.booleans(),
    fused=st.booleans(),
    device=st.sampled_from(["cpu", "cuda"]),
    full=st.booleans(),
).filter(lambda work: not (work.full and work.quantization == "nf4"))


@settings(max_examples=40, deadline=None)
@given(workloads, st.integers(1, MOST), st.integers(-1, 1))
def test_the_longest_row_is_what_a_scan_finds(work: Workload, tokens: int, off: int) -> None:
    """With as much memory as some row needs, a byte less and a byte more."""
    needs = [needed_bytes(with_row(work, n)) for n in range(1, MOST + 1)]
    available = needs[tokens - 1] + off
    scan = next((n for n, need in enumerate(needs) if need > available), MOST)
    assert longest_row(work, available=available, positions=MOST) == scan


@settings(max_examples=40, deadline=None)
@given(workloads, st.integers(1, 60), st.integers(-1, 1))
def test_the_largest_micro_batch_is_what_a_scan_finds(work: Workload, rows: int, off: int) -> None:
    needs = [needed_bytes(replace(work, micro=n)) for n in range(1, 80)]
    available = needs[rows - 1] + off
    scan = next((n for n, need in enumerate(needs) if need > available), None)
    if scan is not None:
        assert largest_micro(work, available=available) == scan


@settings(max_examples=40, deadline=None)
@given(workloads, st.integers(1, MOST - 1))
def test_the_need_never_falls_but_at_the_seam(work: Workload, tokens: int) -> None:
    shorter, longer = with_row(work, tokens), with_row(work, tokens + 1)
    at_seam = work.micro * shorter.trained <= work.loss_chunk < work.micro * longer.trained
    assert at_seam or needed_bytes(shorter) <= needed_bytes(longer)


def test_the_need_does_fall_at_the_seam() -> None:
    """32 targets are one chunk whose logits stay; 33 are two, computed again: a fifth less."""
    seam = replace(WORK, trained=32, longest_row=64)
    assert needed_bytes(replace(seam, trained=33)) < needed_bytes(seam)


def test_bisection_over_the_seam_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: one search over both sides finds a row although a shorter one is too
    much."""
    work = replace(WORK, trained=40, longest_row=40, loss_chunk=30)
    needs = [needed_bytes(with_row(work, n)) for n in range(1, MOST + 1)]
    available = needs[32 - 1]  # less than what 30 tokens need
    assert longest_row(work, available=available, positions=MOST) < 30
    monkeypatch.setattr(limits, "_search", lambda fits, seam, most: limits._largest(fits, 1, most))
    assert longest_row(work, available=available, positions=MOST) == 32


def test_positions_of_the_base_are_the_limit() -> None:
    assert longest_row(WORK, available=10**12, positions=77) == 77
    soft = replace(WORK, soft="prompt", virtual_tokens=7, r=0, targets=())
    assert longest_row(soft, available=10**12, positions=77) == 70
    assert longest_row(soft, available=10**12, positions=7) == 0


def test_nothing_fits() -> None:
    assert longest_row(WORK, available=10, positions=None) == 0
    assert largest_micro(WORK, available=10) == 0
