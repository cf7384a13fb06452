"""Stats: figures worked out by hand."""

from dataclasses import asdict

from hashtune.packing.stats import row_stats, step_stats
from hashtune.packing.steps import Step
from hashtune.packing.worst_row import step_shape
from hashtune.records import Row

ROWS = [
    Row(0, ["a"], [7], [1] * 7, [-100, 1, 1, 1, -100, -100, -100]),
    Row(1, ["b", "c"], [5, 3], [1] * 8, [-100, 1, 1, -100, -100, -100, 1, 1]),
    Row(2, ["d", "e", "f"], [4, 2, 2], [1] * 8, [-100, 1, 1, 1, -100, 1, -100, 1]),
]


def test_row_stats() -> None:
    assert row_stats(ROWS, max_seq_len=8) == {
        "examples": 6,
        "rows": 3,
        "lower_bound_rows": 3,
        "tokens": 23,
        "trained_tokens": 12,
        "trained_share": 0.521739,
        "padding_fraction_before": 0.520833,  # 25 of 48
        "padding_fraction_after": 0.041667,  # 1 of 24
        "longest_document": 7,
        "longest_row": 8,
    }


def test_step_stats() -> None:
    steps = [Step(1, 1, [0, 1], 7, 15), Step(2, 1, [2], 5, 8)]
    assert step_stats(steps, rows_per_step=2) == {
        "steps": 2,
        "rows_per_step": 2,
        "partial_steps": 1,
        "tokens_seen": 23,
        "trained_tokens_seen": 12,
        "tokens_per_step": {"min": 8, "mean": 11.5, "max": 15},
        "trained_tokens_per_step": {"min": 5, "mean": 6.0, "max": 7},
    }


def test_step_shape_takes_the_worst_row() -> None:
    shape = step_shape([asdict(row) for row in ROWS])
    assert (shape.row, shape.longest_row, shape.trained, shape.masked) == (1, 8, 5, True)
    assert shape.context == (49 + 25 + 9 + 16 + 4 + 4) / 23


def test_one_long_row_among_many_short_ones_decides() -> None:
    short = [
        asdict(Row(n, [str(n)], [100], [1] * 100, [-100, 1] + [-100] * 98)) for n in range(999)
    ]
    long = asdict(Row(999, ["long"], [4000], [1] * 4000, [-100, 1] + [-100] * 3998))
    shape = step_shape([*short[:700], long, *short[700:]])
    assert (shape.row, shape.longest_row, shape.masked) == (999, 4000, False)
