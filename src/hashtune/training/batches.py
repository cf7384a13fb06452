"""Rows to tensors.

A row keeps its documents apart by explicit lengths:

    lengths        3           2      | padding
    input_ids      a0 a1 a2    b0 b1  | 0
    labels         .  a1 a2    .  b1  | -100     (label at the token's own position)
    position_ids   0  1  2     0  1   | 0
    document_ids   1  1  1     2  2   | 0

The mask lets token i see token j when j <= i and both lie in the same document. A padding token
sees itself only: a row of the mask without any True would make its softmax NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hashtune.records import IGNORE_INDEX, Row


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of B rows, padded to T tokens.

    input_ids, labels, position_ids: int64 (B, T). mask: bool (B, 1, T, T), or None when every row
    is one document and causal attention alone keeps padding (at the right end) out.
    tokens: tokens that are not padding.
    """

    input_ids: Tensor
    labels: Tensor
    position_ids: Tensor
    mask: Tensor | None
    tokens: int


def collate(rows: Sequence[Row]) -> Batch:
    """Pad the rows at the right to the longest of them."""
    longest = max(len(row.input_ids) for row in rows)
    shape = (len(rows), longest)
    input_ids, positions, documents = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    labels = torch.full(shape, IGNORE_INDEX, dtype=torch.long)
    for index, row in enumerate(rows):
        used = len(row.input_ids)
        input_ids[index, :used] = torch.tensor(row.input_ids)
        labels[index, :used] = torch.tensor(row.labels)
        positions[index, :used] = torch.cat([torch.arange(n) for n in row.lengths])
        documents[index, :used] = torch.repeat_interleave(
            torch.arange(1, len(row.lengths) + 1), torch.tensor(row.lengths)
        )
    single = all(len(row.lengths) == 1 for row in rows)
    return Batch(
        input_ids=input_ids,
        labels=labels,
        position_ids=positions,
        mask=None if single else document_mask(documents),
        tokens=sum(len(row.input_ids) for row in rows),
    )


def document_mask(documents: Tensor) -> Tensor:
    """Block-diagonal causal mask, bool (B, 1, T, T), from document ids (B, T); 0 is padding."""
    length = documents.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = documents[:, :, None] == documents[:, None, :]
    real = (documents != 0)[:, :, None]
    alone = torch.eye(length, dtype=torch.bool)
    return torch.where(real, same & causal, alone)[:, None]
