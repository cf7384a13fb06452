"""Layouts: what each makes of rows, and that loss and gradients are those of masked rows.

In float64, to 1e-10, for any documents, split into micro-batches, layout and attention.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hashtune.records import Row
from hashtune.spec.schema import Attention, Layout
from hashtune.training.documents import attend_as
from hashtune.training.layouts import batch_of, join, micro_batches
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee
from hashtune.training.noise import Noise, on_embeddings

MakeRow = Callable[[int, list[int]], Row]
Gradients = dict[str, Tensor]
LAYOUTS: list[Layout] = ["rows", "length_grouped", "padding_free"]
NOISE = Noise(5.0, seed=7, step=3)


def test_rows_in_order_or_longest_first(make_row: MakeRow) -> None:
    rows = [make_row(n, lengths) for n, lengths in enumerate([[2], [3, 2], [1], [4, 1], [7]])]

    def numbers(layout: Layout) -> list[list[int]]:
        return [[row.row for row in group] for group in micro_batches(rows, 2, layout)]

    assert numbers("rows") == numbers("padding_free") == [[0, 1], [2, 3], [4]]
    assert numbers("length_grouped") == [[4, 1], [3, 0], [2]]  # 1 and 3 as in the plan


def test_grouped_rows_hold_the_least_padding(make_row: MakeRow) -> None:
    rows = [make_row(n, [length]) for n, length in enumerate([9, 2, 8, 3])]

    def padded(layout: Layout) -> int:
        return sum(batch_of(g, layout).input_ids.numel() for g in micro_batches(rows, 2, layout))

    assert [padded(layout) for layout in LAYOUTS] == [34, 24, 22]  # 9 9 8 8, 9 9 3 3, no padding


def test_padding_free_by_hand() -> None:
    rows = [Row(4, ["a", "b"], [2, 1], [10, 11, 20], [10, 11, -100])]
    rows += [Row(2, ["c"], [3], [30, 31, 32], [30, 31, 32])]
    joined = join(rows)
    assert (joined.row, joined.example_ids, joined.lengths) == (4, ["a", "b", "c"], [2, 1, 3])
    batch = batch_of(rows, "padding_free")
    assert batch.input_ids.tolist() == [[10, 11, 20, 30, 31, 32]]
    assert batch.position_ids.tolist() == [[0, 1, 0, 0, 1, 2]]
    # 30 has a label, and in its own row nothing before it: here 20 must not predict it
    assert batch.labels.tolist() == [[-100, 11, -100, -100, 31, 32]]
    assert (batch.lengths, batch.tokens) == (((2, 1, 3),), 6)


@pytest.fixture(scope="module")
def double(make_trainee: Callable[..., Trainee]) -> Trainee:
    """The toy model in float64, norms included, with a lora_B that is not zero."""

    def norm(module: Any, states: Tensor) -> Tensor:
        scale = torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
        normed: Tensor = module.weight * states * scale
        return normed

    trainee = make_trainee(targets="all-linear")
    trainee.peft.double()
    for module in trainee.peft.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(norm, module)
    with torch.no_grad():
        for name, parameter in trainee.parameters.items():
            if "lora_B" in name:
                parameter.copy_(torch.linspace(-0.05, 0.05, parameter.numel()).view_as(parameter))
    return trainee


def gradients(
    trainee: Trainee,
    rows: list[Row],
    *,
    micro: int,
    layout: Layout,
    attention: Attention,
    noise: Noise | None = None,
) -> tuple[float, Gradients]:
    """Loss and gradients of one step."""
    base = trainee.peft.get_base_model()
    base.set_attn_implementation("sdpa")
    attend_as(base, attention, rows)
    total = 0.0
    for group in micro_batches(rows, micro, layout):
        batch = batch_of(group, layout)
        with on_embeddings(trainee, group, noise):
            sums = token_losses(trainee.hidden(batch), batch.labels, trainee.head)
        assert sums.loss.dtype == torch.float64
        sums.loss.backward()
        total += float(sums.loss.detach())
    found = {}
    for name, parameter in trainee.parameters.items():
        assert parameter.grad is not None
        found[name], parameter.grad = parameter.grad, None
    return total, found


def furthest(one: tuple[float, Gradients], other: tuple[float, Gradients]) -> float:
    """The largest difference of any gradient element, or of the loss."""
    differences = [float((grad - other[1][name]).abs().max()) for name, grad in one[1].items()]
    return max(abs(one[0] - other[0]), *differences)


@settings(max_examples=5, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=5
    ).filter(lambda rows: any(length > 1 for row in rows for length in row)),
    micro=st.integers(1, 5),
    noise=st.sampled_from([None, NOISE]),
)
@example(documents=[[1, 1, 5], [3], [1], [2, 1]], micro=2, noise=NOISE)
@example(documents=[[2], [7], [4]], micro=3, noise=None)
def test_every_layout_and_split_has_the_gradients_of_masked_rows(
    double: Trainee,
    make_row: MakeRow,
    documents: list[list[int]],
    micro: int,
    noise: Noise | None,
) -> None:
    rows = [make_row(number, lengths) for number, lengths in enumerate(documents)]
    whole: Any = {"micro": len(rows), "layout": "rows", "attention": "mask", "noise": noise}
    wanted = gradients(double, rows, **whole)
    assert max(float(grad.abs().max()) for grad in wanted[1].values()) > 1e-3
    attentions: list[Attention] = ["mask", "documents"]
    for attention in attentions:
        for layout in LAYOUTS:
            chosen: Any = {"micro": micro, "layout": layout, "attention": attention}
            assert furthest(gradients(double, rows, **chosen, noise=noise), wanted) < 1e-10, chosen


def test_the_same_bits_twice(double: Trainee, make_row: MakeRow) -> None:
    rows = [make_row(number, lengths) for number, lengths in enumerate([[5, 1, 4], [7], [2, 9]])]
    chosen: Any = {"micro": 2, "layout": "padding_free", "attention": "documents"}
    first, second = (gradients(double, rows, **chosen) for _ in range(2))
    assert furthest(first, second) == 0.0
    assert first[0] == second[0]


def test_documents_that_lean_on_each_other_are_no_parity(
    double: Trainee, make_row: MakeRow
) -> None:
    """Planted fault: the same tokens and labels with the boundary forgotten."""
    row = make_row(1, [5, 4])
    merged = Row(1, ["x"], [9], row.input_ids, row.labels)
    chosen: Any = {"micro": 1, "layout": "rows", "attention": "documents"}
    right, wrong = (gradients(double, [one], **chosen) for one in (row, merged))
    assert furthest(right, wrong) > 1e-3


def test_noise_follows_its_row_into_one_sequence(double: Trainee, make_row: MakeRow) -> None:
    rows = [make_row(0, [3]), make_row(1, [5, 1])]
    embedding = double.peft.get_base_model().get_input_embeddings()
    ids = batch_of(rows, "padding_free").input_ids
    plain = embedding(ids)
    with on_embeddings(double, rows, NOISE):
        noisy = embedding(ids)
    drawn = torch.cat([NOISE.of(row, plain.shape[-1]) for row in rows])
    assert torch.equal(noisy[0], plain[0] + drawn)
