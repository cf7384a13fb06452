"""Weights, limits and replay: exact counts, distinct ids, an order of its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.mixture import mix, number_repeats
from hashtune.data.table import hash64
from hashtune.records import Conversation


def rows(count, source="a"):
    return [Conversation(name(i, source), source, [], i) for i in range(1, count + 1)]


def name(number, source="a"):
    return f"{ord(source[0]):02x}{number:014x}"


@pytest.fixture(scope="module")
def mixed(table_of):
    """Mixes conversations; gives the table and the mixture."""

    def run(sources, weights, limits, replay=(), share=0.0):
        every = [row for of in sources.values() for row in of] + list(replay)
        table = table_of(every)
        numbers = np.arange(len(every))
        given_rows = {source: table.of(numbers, source) for source in sources}
        replay_rows = table.of(numbers, "replay")
        return table, mix(
            table, given_rows, weights=weights, max_rows=limits, replay=replay_rows, share=share
        )

    return run


@pytest.fixture(scope="module")
def one(mixed):
    """Mixes one source; gives the ids in order, the ledger and the mixture."""

    def run(of, weight=1.0, limit=None, replay=(), share=0.0):
        table, mixture = mixed({"a": of}, {"a": weight}, {"a": limit}, replay, share)
        return ids(table, mixture.rows), list(table.ledger()), mixture

    return run


def ids(table, chosen):
    return [table.id(*row) for row in zip(chosen.rows, chosen.times, strict=True)]


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
def test_rows_taken(one, weight, limit, count, dropped):
    taken, ledger, mixture = one(rows(10), weight, limit)
    assert len(taken) == mixture.task == count
    reasons = [row.reason for row in ledger]
    assert {reason: reasons.count(reason) for reason in reasons} == dropped
    assert mixture.repeated == {"a": max(0, count - 10)}
    assert mixture.findings == []


def test_repeats_have_ids_of_their_own(one, table_of):
    taken, _, _ = one(rows(2), 2.5)
    first = min([name(1), name(2)], key=hash64)
    copies = [name(1), name(2), f"{name(1)}#2", f"{name(2)}#2", f"{first}#3"]
    assert taken == sorted(copies, key=hash64)
    twice = [Conversation(name(7), "b", [], 1), Conversation(name(7), "a", [], 9)]
    table = table_of(twice)
    assert ids(table, number_repeats(table, np.arange(2))) == [name(7), f"{name(7)}#2"]


def test_smaller_weights_and_limits_take_a_prefix_in_hash_order(one):
    taken, _, _ = one(rows(10), 0.3)
    assert taken == sorted((row.id for row in rows(10)), key=hash64)[:3]
    assert taken == one(rows(10), limit=3)[0]


@settings(deadline=None)  # a busy machine is no fault
@given(seed=st.randoms(use_true_random=False), weight=st.floats(0.1, 3.0))
def test_neither_choice_nor_order_depends_on_input_order(mixed, seed, weight):
    a, b, replay = rows(7), rows(5, "b"), rows(20, "replay")
    weights, limits = {"a": weight, "b": 1.0}, {"a": None, "b": 4}

    def taken(sources):
        table, mixture = mixed(sources, weights, limits, replay, 0.2)
        return ids(table, mixture.rows)

    expected = taken({"a": a, "b": b})
    for of in (a, b, replay):
        seed.shuffle(of)
    assert taken({"b": b, "a": a}) == expected
    assert expected == sorted(expected, key=hash64)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.2, 3), (0.5, 10), (0.1, 1)])
def test_replay_share(one, share, count):
    _, ledger, mixture = one(rows(10), replay=rows(10, "replay"), share=share)
    assert (mixture.task, mixture.replay) == (10, count)  # round(10 * share / (1 - share))
    assert mixture.replay_share == count / (10 + count)
    assert [row.reason for row in ledger] == ["replay_share"] * (10 - count)
    assert mixture.findings == []


def test_too_few_replay_answers_is_a_finding_with_the_numbers(one):
    [finding] = one(rows(10), replay=rows(2, "replay"), share=0.5)[2].findings
    assert finding.field == "data.replay.share"
    assert finding.message == (
        "0.5 of the mix is 10 replay rows for 10 task rows, but there are 2 answers"
    )
    assert finding.fix == "raise data.replay.max_prompts, add 8 prompts, or lower the share"
    [finding] = one(rows(10), share=1.0)[2].findings
    assert finding.field == "data.replay.share"


def test_a_source_that_gives_nothing_is_a_finding(one):
    [finding] = one(rows(4), 0.1)[2].findings
    assert finding.message == "takes 0 of 4 rows of a at weight 0.1"
