"""How the rows of a step become micro-batches: three layouts of one step plan.

    rows             in the plan's order, padded to the longest of each micro-batch
    length_grouped   longest first, so that rows of like length share a micro-batch's padding
    padding_free     a micro-batch is one sequence, its rows end to end without padding

The step's loss is a sum over its rows, so the gradient is the same but for the order of sums. (With
dropout the random numbers fall elsewhere, as for any other split into micro-batches.)
"""

from collections.abc import Sequence

from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Layout
from hashtune.training.batches import Batch, collate


def micro_batches(rows: Sequence[Row], size: int, layout: Layout = "rows") -> list[Sequence[Row]]:
    """The rows in groups of at most `size`. Rows of equal length stay in the plan's order."""
    if layout == "length_grouped":
        rows = sorted(rows, key=lambda row: -len(row.input_ids))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def batch_of(rows: Sequence[Row], layout: Layout = "rows") -> Batch:
    """The tensors of one micro-batch."""
    return collate([join(rows)] if layout == "padding_free" else rows)


def join(rows: Sequence[Row]) -> Row:
    """One row of all documents. No label crosses: nothing before a row predicts its first token."""
    return Row(
        row=rows[0].row,
        example_ids=[name for row in rows for name in row.example_ids],
        lengths=[length for row in rows for length in row.lengths],
        input_ids=[token for row in rows for token in row.input_ids],
        labels=[label for row in rows for label in (IGNORE_INDEX, *row.labels[1:])],
    )
