"""Optimizer steps: which rows each step sees, fixed before training and independent of hardware.

Every epoch is a permutation of all rows, drawn from a hash, so it depends on (data_seed, epoch,
row) alone and on no library's random generator. A step takes the next `rows_per_step` rows:
micro * grad_accum * world_size. How a step's rows split into micro-batches and ranks is the
training loop's business and does not change the plan.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hashtune.packing.rows import trained_tokens
from hashtune.records import Row


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step, as in records.step_schema.

    Steps and epochs count from 1. `rows` are row numbers in the order they are seen;
    `trained_tokens` normalises the step's summed loss; `tokens` are without padding.
    """

    step: int
    epoch: int
    rows: list[int]
    trained_tokens: int
    tokens: int


def epoch_order(rows: int, *, epoch: int, data_seed: int) -> list[int]:
    """The permutation of row numbers 0..rows-1 in an epoch: sorted by sha256 of seed/epoch/row."""

    def key(row: int) -> bytes:
        return hashlib.sha256(f"{data_seed}/{epoch}/{row}".encode("ascii")).digest()

    return sorted(range(rows), key=key)


def plan_steps(
    rows: Sequence[Row], *, rows_per_step: int, epochs: int, max_steps: int | None, data_seed: int
) -> list[Step]:
    """Assign rows to optimizer steps.

    An epoch sees every row once; what is left at its end makes a smaller step of its own, with
    its own count of trained tokens. The plan ends after `epochs`, or after `max_steps` steps when
    that comes first.

    Args:
        rows: rows numbered 0..n-1 in order.
        rows_per_step: micro * grad_accum * world_size.
        epochs: passes over the rows.
        max_steps: the most steps, or None.
        data_seed: another seed gives other permutations.

    Raises:
        ValueError: the rows are not numbered 0..n-1, or `rows_per_step` is below 1.
    """
    if [row.row for row in rows] != list(range(len(rows))):
        raise ValueError("rows are not numbered 0..n-1 in order")
    if rows_per_step < 1:
        raise ValueError(f"rows_per_step is {rows_per_step}")
    tokens = [len(row.input_ids) for row in rows]
    trained = [trained_tokens(row) for row in rows]
    steps: list[Step] = []
    for epoch, window in _windows(len(rows), rows_per_step, epochs, data_seed):
        if max_steps is not None and len(steps) >= max_steps:
            break
        steps.append(
            Step(
                step=len(steps) + 1,
                epoch=epoch,
                rows=window,
                trained_tokens=sum(trained[row] for row in window),
                tokens=sum(tokens[row] for row in window),
            )
        )
    return steps


def _windows(
    rows: int, rows_per_step: int, epochs: int, data_seed: int
) -> Iterator[tuple[int, list[int]]]:
    for epoch in range(1, epochs + 1):
        order = epoch_order(rows, epoch=epoch, data_seed=data_seed)
        for start in range(0, rows, rows_per_step):
            yield epoch, order[start : start + rows_per_step]
