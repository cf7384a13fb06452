"""Rows to tensors: the drawing of the module docstring and cases C19, C29, C30, place by place."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from hashtune.packing.rows import build_rows, document_ids
from hashtune.records import Row
from hashtune.training.batches import collate, document_mask


def dots(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if seen else "." for seen in line) for line in mask.tolist()]


def test_the_drawing() -> None:
    a, b = [10, 11, 12], [20, 21]
    packed = Row(0, ["a", "b"], [3, 2], [*a, *b], [-100, 11, 12, -100, 21])
    longer = Row(1, ["c"], [6], [1, 2, 3, 4, 5, 6], [-100, 2, 3, 4, 5, 6])
    batch = collate([packed, longer])
    assert batch.input_ids.tolist() == [[10, 11, 12, 20, 21, 0], [1, 2, 3, 4, 5, 6]]
    assert batch.labels.tolist() == [[-100, 11, 12, -100, 21, -100], [-100, 2, 3, 4, 5, 6]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5]]
    assert batch.lengths == ((3, 2), (6,))
    assert batch.tokens == 11
    assert batch.mask is not None
    assert batch.mask.shape == (2, 1, 6, 6)
    assert batch.mask.dtype == torch.bool
    assert dots(batch.mask[0, 0]) == ["x.....", "xx....", "xxx...", "...x..", "...xx.", ".....x"]
    assert dots(batch.mask[1, 0]) == ["x.....", "xx....", "xxx...", "xxxx..", "xxxxx.", "xxxxxx"]


def test_document_mask_of_ids() -> None:
    mask = document_mask(torch.tensor([[1, 2, 2, 3, 0, 0]]))
    assert dots(mask[0, 0]) == ["x.....", ".x....", ".xx...", "...x..", "....x.", ".....x"]


def test_every_line_of_the_mask_sees_something() -> None:
    """A line without any True would make its softmax NaN."""
    assert bool(document_mask(torch.tensor([[0, 0], [1, 0]])).any(-1).all())


def test_single_documents_need_no_mask() -> None:
    rows = [Row(0, ["a"], [2], [7, 8], [-100, 8]), Row(1, ["b"], [1], [9], [-100])]
    batch = collate(rows)
    assert batch.mask is None
    assert batch.input_ids.tolist() == [[7, 8], [9, 0]]
    assert batch.labels.tolist() == [[-100, 8], [-100, -100]]
    assert batch.position_ids.tolist() == [[0, 1], [0, 1]]
    assert batch.tokens == 3


def test_c29_c30_positions_reset_and_no_label_crosses() -> None:
    a, b = [10, 11, 12, 2], [20, 21, 2]
    (row,) = build_rows(
        [{"id": n, "input_ids": ids, "labels": ids} for n, ids in (("A", a), ("B", b))],
        max_seq_len=7,
        packing=True,
    )
    batch = collate([row, Row(1, ["c"], [8], list(range(3, 11)), list(range(3, 11)))])
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert batch.labels[0].tolist() == [-100, 11, 12, 2, -100, 21, 2, -100]
    assert int((batch.labels[0, 1:] != -100).sum()) == 5
    assert document_ids(row.lengths, padded_to=8) == [1, 1, 1, 1, 2, 2, 2, 0]
    assert batch.mask is not None
    assert dots(batch.mask[0, 0])[4:] == ["....x...", "....xx..", "....xxx.", ".......x"]


def test_c19_padding_is_told_by_length_never_by_token() -> None:
    """pad = eos = 2 in the data: the real ends keep their labels."""
    rows = [Row(0, ["a"], [3], [5, 6, 2], [5, 6, 2]), Row(1, ["b"], [2], [7, 2], [7, 2])]
    assert collate(rows).labels.tolist() == [[5, 6, 2], [7, 2, -100]]


def test_c19_the_id_of_padding_changes_nothing(make_trainee: Callable[..., Any]) -> None:
    """Ours is 0, in place of the tokenizer's: no real token sees it and no label is at it."""
    batch = collate([Row(0, ["a"], [3], [5, 6, 2], [5, 6, 2]), Row(1, ["b"], [2], [7, 2], [7, 2])])
    as_eos = batch.input_ids.clone()
    as_eos[1, 2] = 2
    assert as_eos.tolist() == [[5, 6, 2], [7, 2, 2]]
    other = replace(batch, input_ids=as_eos)
    assert (other.lengths, other.labels.tolist()) == (((3,), (2,)), [[5, 6, 2], [7, 2, -100]])
    trainee = make_trainee()
    found = []
    for each in (batch, other):
        sums = trainee.losses(each)
        sums.loss.backward()
        gradients = [p.grad.clone() for p in trainee.parameters.values()]
        for parameter in trainee.parameters.values():
            parameter.grad = None
        found.append((float(sums.loss.detach()), sums.tokens, gradients))
    (loss, tokens, own), (again, _, theirs) = found
    assert (loss, tokens) == (again, 3)
    assert all(torch.equal(one, two) for one, two in zip(own, theirs, strict=True))
    assert any(bool(one.any()) for one in own)
