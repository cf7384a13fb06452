"""Rows to tensors.

A row keeps its documents apart by explicit lengths:

    lengths        3           2      | padding
    input_ids      a0 a1 a2    b0 b1  | 0
    labels         .  a1 a2    .  b1  | -100     (label at the token's own position)
    position_ids   0  1  2     0  1   | 2        (counts on: a 0 would begin a document)
    document_ids   1  1  1     2  2   | 0

The mask lets token i see token j when j <= i and both lie in the same document. A padding token
sees itself only: a row of the mask without any True would make its softmax NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hashtune.records import IGNORE_INDEX, Row

Lengths = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of B sequences, padded to T tokens.

    input_ids, labels, position_ids: int64 (B, T). lengths: of each sequence's documents.
    """

    input_ids: Tensor
    labels: Tensor
    position_ids: Tensor
    lengths: Lengths

    @property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return sum(map(sum, self.lengths))

    @property
    def mask(self) -> Tensor | None:
        """Bool (B, 1, T, T), or None when every sequence is one document and causal attention
        alone keeps padding (at the right end) out."""
        if all(len(lengths) == 1 for lengths in self.lengths):
            return None
        documents = torch.zeros_like(self.input_ids)
        for index, lengths in enumerate(self.lengths):
            numbers = torch.arange(1, len(lengths) + 1)
            documents[index, : sum(lengths)] = torch.repeat_interleave(
                numbers, torch.tensor(lengths)
            )
        return document_mask(documents)


def collate(rows: Sequence[Row]) -> Batch:
    """Pad the rows at the right to the longest of them."""
    longest = max(len(row.input_ids) for row in rows)
    shape = (len(rows), longest)
    input_ids, positions = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    labels = torch.full(shape, IGNORE_INDEX, dtype=torch.long)
    for index, row in enumerate(rows):
        used = len(row.input_ids)
        input_ids[index, :used] = torch.tensor(row.input_ids)
        labels[index, :used] = torch.tensor(row.labels)
        *before, last = row.lengths
        spans = [*before, last + longest - used]
        positions[index] = torch.cat([torch.arange(span) for span in spans])
    return Batch(
        input_ids=input_ids,
        labels=labels,
        position_ids=positions,
        lengths=tuple(tuple(row.lengths) for row in rows),
    )


def document_mask(documents: Tensor) -> Tensor:
    """Block-diagonal causal mask, bool (B, 1, T, T), from document ids (B, T); 0 is padding."""
    length = documents.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = documents[:, :, None] == documents[:, None, :]
    real = (documents != 0)[:, :, None]
    alone = torch.eye(length, dtype=torch.bool)
    return torch.where(real, same & causal, alone)[:, None]
