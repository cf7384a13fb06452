"""Steps: every row once per epoch, the partial window, the cut, frozen permutations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.packing.steps import Step, epoch_order, plan_steps
from hashtune.records import Row


def make_rows(count: int) -> list[Row]:
    """Row n has n + 2 tokens, all but the first trained."""
    return [Row(n, [str(n)], [n + 2], [7] * (n + 2), [-100, *[7] * (n + 1)]) for n in range(count)]


def test_permutations_are_frozen() -> None:
    # sha256 of "1234/<epoch>/<row>": another order here would change every adapter ever trained
    assert epoch_order(6, epoch=1, data_seed=1234) == [1, 4, 3, 2, 5, 0]
    assert epoch_order(6, epoch=2, data_seed=1234) == [3, 1, 2, 4, 5, 0]
    assert epoch_order(6, epoch=1, data_seed=1235) == [0, 4, 1, 2, 3, 5]


def test_the_partial_window_is_a_step_of_its_own() -> None:
    steps = plan_steps(make_rows(3), rows_per_step=2, epochs=2, max_steps=None, data_seed=1)
    assert [(step.step, step.epoch, len(step.rows)) for step in steps] == [
        (1, 1, 2),
        (2, 1, 1),
        (3, 2, 2),
        (4, 2, 1),
    ]
    for step in steps:
        assert step.tokens == sum(row + 2 for row in step.rows)
        assert step.trained_tokens == sum(row + 1 for row in step.rows)


def test_max_steps_cuts_and_never_adds() -> None:
    rows = make_rows(5)
    whole = plan_steps(rows, rows_per_step=2, epochs=2, max_steps=None, data_seed=1)
    assert len(whole) == 6
    assert plan_steps(rows, rows_per_step=2, epochs=2, max_steps=4, data_seed=1) == whole[:4]
    assert plan_steps(rows, rows_per_step=2, epochs=2, max_steps=99, data_seed=1) == whole


@given(
    st.integers(1, 30), st.integers(1, 9), st.integers(1, 3), st.integers(0, 5), st.integers(1, 4)
)
def test_each_row_once_per_epoch(
    count: int, rows_per_step: int, epochs: int, seed: int, more: int
) -> None:
    steps = plan_steps(
        make_rows(count), rows_per_step=rows_per_step, epochs=epochs, max_steps=None, data_seed=seed
    )
    for epoch in range(1, epochs + 1):
        seen = [row for step in steps if step.epoch == epoch for row in step.rows]
        assert sorted(seen) == list(range(count))
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    # another epoch or another batch size continues the same order of rows
    longer = plan_steps(
        make_rows(count),
        rows_per_step=rows_per_step,
        epochs=epochs + more,
        max_steps=None,
        data_seed=seed,
    )
    assert longer[: len(steps)] == steps


@given(st.sampled_from([(1, 8, 1), (8, 1, 1), (2, 2, 2), (4, 1, 2)]), st.integers(0, 3))
def test_the_split_into_micro_batches_and_ranks_changes_nothing(
    split: tuple[int, int, int], seed: int
) -> None:
    micro, grad_accum, world_size = split
    plan: list[Step] = plan_steps(
        make_rows(21),
        rows_per_step=micro * grad_accum * world_size,
        epochs=2,
        max_steps=None,
        data_seed=seed,
    )
    assert plan == plan_steps(
        make_rows(21), rows_per_step=8, epochs=2, max_steps=None, data_seed=seed
    )


def test_faults_of_the_caller() -> None:
    rows = make_rows(3)
    with pytest.raises(ValueError, match="numbered"):
        plan_steps(rows[::-1], rows_per_step=2, epochs=1, max_steps=None, data_seed=1)
    with pytest.raises(ValueError, match="rows_per_step"):
        plan_steps(rows, rows_per_step=0, epochs=1, max_steps=None, data_seed=1)
