"""Rows of documents: which example lies where, and what may not cross a document's edge.

documents    A = 10 11 12 2        B = 20 21 2
input_ids        10   11   12    2    20   21    2
labels         -100   11   12    2  -100   21    2    the first token predicts from nothing
position ids      0    1    2    3     0    1    2
document ids      1    1    1    1     2    2    2    0 is padding
offsets        0 4 7
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.packing.bins import pack_lengths
from hashtune.records import IGNORE_INDEX, Row

PADDING_DOCUMENT = 0

ExampleDict = Mapping[str, Any]


def position_ids(lengths: Sequence[int]) -> list[int]:
    """Positions 0..n-1 of every document in a row: [4, 3] -> [0, 1, 2, 3, 0, 1, 2]."""
    return [position for length in lengths for position in range(length)]


def document_ids(lengths: Sequence[int], *, padded_to: int | None = None) -> list[int]:
    """The document (from 1) each token belongs to; padding up to `padded_to` has document 0."""
    ids = [number for number, length in enumerate(lengths, start=1) for _ in range(length)]
    if padded_to is not None:
        ids += [PADDING_DOCUMENT] * (padded_to - len(ids))
    return ids


def document_offsets(lengths: Sequence[int]) -> list[int]:
    """Where each document starts, and the end: [4, 3] -> [0, 4, 7]."""
    return list(accumulate(lengths, initial=0))


def build_rows(
    examples: Sequence[ExampleDict], *, max_seq_len: int, packing: bool, file: str | None = None
) -> list[Row]:
    """Lay examples into rows of at most `max_seq_len` tokens.

    Args:
        examples: dicts with the keys of records.Example.
        max_seq_len: tokens a row holds.
        packing: False puts one document in each row, in the order of `examples`.
        file: where the examples come from, for the findings.

    Returns:
        Rows numbered from 0, every example in exactly one of them. The label of each document's
        first token is -100, so no label crosses a boundary.

    Raises:
        InputError: an example is empty, longer than `max_seq_len`, has labels of another length,
            or no trained token after its first; all of them are listed.
    """
    findings = [
        Finding(rule, f"example {number} ({example['id']}) {message}", file=file, fix=fix)
        for number, example in enumerate(examples)
        for rule, message, fix in _faults(example, max_seq_len)
    ]
    if findings:
        raise InputError(findings)
    lengths = [len(example["input_ids"]) for example in examples]
    bins = pack_lengths(lengths, max_seq_len) if packing else [[n] for n in range(len(lengths))]
    return [_row(number, [examples[n] for n in members]) for number, members in enumerate(bins)]


def _faults(example: ExampleDict, max_seq_len: int) -> list[tuple[str, str, str | None]]:
    tokens, labels = len(example["input_ids"]), example["labels"]
    if tokens > max_seq_len:
        message = f"has {tokens} tokens, more than data.max_seq_len = {max_seq_len}"
        return [("over-long", message, "raise data.max_seq_len, or data.over_length=drop")]
    if not tokens:
        return [("empty-example", "has no tokens", None)]
    if len(labels) != tokens:
        return [("labels-length", f"has {tokens} tokens but {len(labels)} labels", None)]
    if all(label == IGNORE_INDEX for label in labels[1:]):
        return [("nothing-to-learn", "has no trained token after its first", None)]
    return []


def _row(number: int, members: Sequence[ExampleDict]) -> Row:
    return Row(
        row=number,
        example_ids=[example["id"] for example in members],
        lengths=[len(example["input_ids"]) for example in members],
        input_ids=[token for example in members for token in example["input_ids"]],
        labels=[label for example in members for label in (IGNORE_INDEX, *example["labels"][1:])],
    )


def trained_tokens(row: Row) -> int:
    """Targets of a row: labels that are not -100."""
    return sum(label != IGNORE_INDEX for label in row.labels)
