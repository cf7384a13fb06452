"""Split by content hash: stable under any change of the other rows, groups stay together."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.split import check_fractions, fraction, split, take_first
from hashtune.data.table import hash64
from hashtune.records import Conversation

FRACTIONS = st.floats(0.0, 0.5)
KEYS = st.integers(0, 2**64 - 1).map("{:016x}".format)
ROWS = st.lists(
    st.builds(
        lambda key, group: Conversation(key, "s", [], 1, group),
        KEYS,
        st.none() | st.sampled_from("ab"),
    ),
    max_size=40,
    unique_by=lambda row: row.id,
)


def where(table, eval_fraction, test_fraction) -> dict[str, str]:
    every = np.arange(len(table))
    parts = split(table, every, eval_fraction=eval_fraction, test_fraction=test_fraction)
    return {table.id(row): name for name, part in parts._asdict().items() for row in part}


def test_fraction_is_the_head_of_the_sha256():
    # printf a | sha256sum: ca978112ca1bbdca...
    assert hash64("a") == 0xCA978112CA1BBDCA
    heads = np.array([0xCA978112CA1BBDCA, 0, 2**64 - 1], np.uint64)
    assert list(fraction(heads)) == [0xCA978112CA1BB / 2**52, 0.0, 1.0 - 2.0**-52]


@settings(deadline=None)  # a busy machine is no fault
@given(rows=ROWS, more=ROWS, eval_fraction=FRACTIONS, test_fraction=FRACTIONS)
def test_adding_or_moving_rows_never_moves_old_ones(
    table_of, rows, more, eval_fraction, test_fraction
):
    before = where(table_of(rows), eval_fraction, test_fraction)
    after = where(table_of([*more, *reversed(rows)]), eval_fraction, test_fraction)
    assert len(before) == len(rows)
    known = {row.id for row in more}
    assert all(after[key] == name for key, name in before.items() if key not in known)


@settings(deadline=None)  # a busy machine is no fault
@given(rows=ROWS, eval_fraction=FRACTIONS, test_fraction=FRACTIONS)
def test_a_group_stays_on_one_side(table_of, rows, eval_fraction, test_fraction):
    places = where(table_of(rows), eval_fraction, test_fraction)
    for group in "ab":
        assert len({places[row.id] for row in rows if row.group == group}) <= 1


@settings(deadline=None)  # a busy machine is no fault
@given(rows=ROWS, test_fraction=FRACTIONS)
def test_a_larger_eval_fraction_moves_rows_from_train_only(table_of, rows, test_fraction):
    table = table_of(rows)
    small, large = where(table, 0.1, test_fraction), where(table, 0.4, test_fraction)
    moved = {(small[key], large[key]) for key in small if small[key] != large[key]}
    assert moved <= {("train", "eval")}


def test_share_is_about_the_fraction(table_of):
    table = table_of(Conversation(f"{i:016x}", "s", []) for i in range(10_000))
    parts = split(table, np.arange(10_000), eval_fraction=0.1, test_fraction=0.2)
    assert abs(len(parts.eval) - 1000) < 120
    assert abs(len(parts.test) - 2000) < 160


@settings(deadline=None)  # a busy machine is no fault
@given(rows=ROWS, limit=st.integers(0, 50))
def test_take_first_is_a_prefix_whatever_the_input_order(table_of, rows, limit):
    def taken(of, limit):
        table = table_of(of)
        return [list(map(table.id, part)) for part in take_first(table, np.arange(len(of)), limit)]

    first, others = taken(rows, limit)
    assert taken(rows[::-1], limit) == [first, others]
    assert first + others == sorted((row.id for row in rows), key=hash64)
    assert len(first) == min(limit, len(rows))


def test_fractions_must_leave_train_something():
    assert check_fractions(eval_fraction=0.4, test_fraction=0.5) == []
    [finding] = check_fractions(eval_fraction=0.5, test_fraction=0.5)
    assert finding.field == "data.eval.fraction"
