"""Weights, limits and replay: exact counts, distinct ids, an order of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.data.mixture import mix, number_repeats
from hashtune.data.split import rank
from hashtune.records import Conversation


def rows(count, source="a"):
    return [Conversation(f"{source}{i}", source, [], i) for i in range(1, count + 1)]


def one(of, weight=1.0, limit=None, replay=(), share=0.0):
    return mix({"a": of}, {"a": weight}, {"a": limit}, replay, share)


@pytest.mark.parametrize(
    ("weight", "limit", "count", "dropped"),
    [
        (1.0, None, 10, {}),
        (0.5, None, 5, {"weight": 5}),
        (0.25, None, 3, {"weight": 7}),
        (2.0, None, 20, {}),
        (1.5, 12, 12, {}),
        (1.0, 4, 4, {"max_rows": 6}),
        (0.5, 2, 2, {"max_rows": 3, "weight": 5}),
    ],
)
def test_rows_taken(weight, limit, count, dropped):
    mixture = one(rows(10), weight, limit)
    assert len(mixture.rows) == mixture.task == count
    reasons = [row.reason for row in mixture.dropped]
    assert {reason: reasons.count(reason) for reason in reasons} == dropped
    assert mixture.repeated == {"a": max(0, count - 10)}
    assert mixture.findings == []


def test_repeats_have_ids_of_their_own():
    ids = sorted(row.id for row in one(rows(2), 2.5).rows)
    first = min(["a1", "a2"], key=rank)
    assert ids == sorted(["a1", "a2", "a1#2", "a2#2", f"{first}#3"])
    twice = [Conversation("x", "b", [], 1), Conversation("x", "a", [], 9)]
    assert [row.id for row in number_repeats(twice)] == ["x", "x#2"]


def test_smaller_weights_and_limits_take_a_prefix_in_hash_order():
    taken = {row.id for row in one(rows(10), 0.3).rows}
    assert taken == set(sorted((row.id for row in rows(10)), key=rank)[:3])
    assert taken == {row.id for row in one(rows(10), limit=3).rows}


@given(seed=st.randoms(use_true_random=False), weight=st.floats(0.1, 3.0))
def test_neither_choice_nor_order_depends_on_input_order(seed, weight):
    a, b, replay = rows(7), rows(5, "b"), rows(20, "replay")
    weights, limits = {"a": weight, "b": 1.0}, {"a": None, "b": 4}
    expected = mix({"a": a, "b": b}, weights, limits, replay, 0.2).rows
    for of in (a, b, replay):
        seed.shuffle(of)
    assert mix({"b": b, "a": a}, weights, limits, replay, 0.2).rows == expected
    assert [row.id for row in expected] == sorted((row.id for row in expected), key=rank)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.2, 3), (0.5, 10), (0.1, 1)])
def test_replay_share(share, count):
    mixture = one(rows(10), replay=rows(10, "replay"), share=share)
    assert (mixture.task, mixture.replay) == (10, count)  # round(10 * share / (1 - share))
    assert mixture.replay_share == count / (10 + count)
    assert [row.reason for row in mixture.dropped] == ["replay_share"] * (10 - count)
    assert mixture.findings == []


def test_too_few_replay_answers_is_a_finding_with_the_numbers():
    [finding] = one(rows(10), replay=rows(2, "replay"), share=0.5).findings
    assert finding.field == "data.replay.share"
    assert finding.message == (
        "0.5 of the mix is 10 replay rows for 10 task rows, but there are 2 answers"
    )
    assert finding.fix == "raise data.replay.max_prompts, add 8 prompts, or lower the share"
    [finding] = one(rows(10), share=1.0).findings
    assert finding.field == "data.replay.share"


def test_a_source_that_gives_nothing_is_a_finding():
    [finding] = one(rows(4), 0.1).findings
    assert finding.message == "takes 0 of 4 rows of a at weight 0.1"
