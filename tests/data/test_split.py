"""Split by content hash: stable under any change of the other rows, groups stay together."""

from hypothesis import given
from hypothesis import strategies as st

from hashtune.data.split import check_fractions, fraction, rank, split, take_first
from hashtune.records import Conversation

FRACTIONS = st.floats(0.0, 0.5)
KEYS = st.text(max_size=8)
ROWS = st.lists(
    st.builds(
        lambda key, group: Conversation(key, "s", [], 1, group),
        KEYS,
        st.none() | st.sampled_from("ab"),
    ),
    max_size=40,
    unique_by=lambda row: row.id,
)


def where(rows, eval_fraction, test_fraction) -> dict[str, str]:
    parts = split(rows, eval_fraction=eval_fraction, test_fraction=test_fraction)
    named = (("train", parts.train), ("eval", parts.eval), ("test", parts.test))
    return {row.id: name for name, part in named for row in part}


def test_fraction_is_the_head_of_the_sha256():
    # printf a | sha256sum: ca978112ca1bb...
    assert fraction("a") == 0xCA978112CA1BB / 2**52
    assert rank("a").startswith("ca978112ca1bbdca")


@given(KEYS)
def test_fraction_is_in_range(key):
    assert 0.0 <= fraction(key) < 1.0


@given(rows=ROWS, more=ROWS, eval_fraction=FRACTIONS, test_fraction=FRACTIONS)
def test_adding_or_moving_rows_never_moves_old_ones(rows, more, eval_fraction, test_fraction):
    before = where(rows, eval_fraction, test_fraction)
    after = where([*more, *reversed(rows)], eval_fraction, test_fraction)
    assert len(before) == len(rows)
    known = {row.id for row in more}
    assert all(after[key] == name for key, name in before.items() if key not in known)


@given(rows=ROWS, eval_fraction=FRACTIONS, test_fraction=FRACTIONS)
def test_a_group_stays_on_one_side(rows, eval_fraction, test_fraction):
    places = where(rows, eval_fraction, test_fraction)
    for group in "ab":
        assert len({places[row.id] for row in rows if row.group == group}) <= 1


@given(rows=ROWS, test_fraction=FRACTIONS)
def test_a_larger_eval_fraction_moves_rows_from_train_only(rows, test_fraction):
    small, large = where(rows, 0.1, test_fraction), where(rows, 0.4, test_fraction)
    moved = {(small[key], large[key]) for key in small if small[key] != large[key]}
    assert moved <= {("train", "eval")}


def test_share_is_about_the_fraction():
    rows = [Conversation(str(i), "s", []) for i in range(10_000)]
    parts = split(rows, eval_fraction=0.1, test_fraction=0.2)
    assert abs(len(parts.eval) - 1000) < 120
    assert abs(len(parts.test) - 2000) < 160


@given(rows=ROWS, limit=st.integers(0, 50))
def test_take_first_is_a_prefix_whatever_the_input_order(rows, limit):
    taken, others = take_first(rows, limit)
    assert take_first(rows[::-1], limit) == (taken, others)
    assert taken + others == take_first(rows, None)[0]
    assert len(taken) == min(limit, len(rows))


def test_fractions_must_leave_train_something():
    assert check_fractions(eval_fraction=0.4, test_fraction=0.5) == []
    [finding] = check_fractions(eval_fraction=0.5, test_fraction=0.5)
    assert finding.field == "data.eval.fraction"
