"""Alike rows are found and the first one stays; nothing below the threshold is dropped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.near_duplicates import (
    conversation_shingles,
    drop_near_duplicates,
    jaccard,
    shingles,
)
from hashtune.records import Conversation, Dropped


def talk(user, answer="a", *, system=None, line=1, **extra):
    frame = [] if system is None else [{"role": "system", "content": system}]
    messages = [
        *frame,
        {"role": "user", "content": user},
        {"role": "assistant", "content": answer, **extra},
    ]
    return Conversation(f"{line:016x}", "s", messages, line)


@pytest.fixture(scope="module")
def dropped_of(table_of):
    """Drops near-duplicates among conversations: those that stay and the ledger."""

    def run(rows, *, threshold, n):
        table = table_of(rows)
        kept = drop_near_duplicates(table, np.arange(len(rows)), threshold=threshold, n=n)
        return [rows[number] for number in kept], list(table.ledger())

    return run


def test_shingles_are_runs_of_normalised_words_and_signs():
    assert shingles("What IS  2+2?", 3) == {"what is 2", "is 2 +", "2 + 2", "+ 2 ?"}
    assert shingles("short", 3) == {"short"}
    assert shingles("天気は", 2) == {"天 気", "気 は"}
    assert shingles(" \n", 3) == frozenset()
    assert jaccard(shingles("2+2", 1), shingles("2-2", 1)) == 1 / 3
    assert jaccard(frozenset(), frozenset()) == 0.0


WORDS = "one two three four five six seven eight nine ten"


def test_the_first_of_alike_rows_stays_and_the_ledger_names_it(dropped_of):
    rows = [
        talk(WORDS, line=1),
        talk("something else entirely", line=2),
        talk(f"{WORDS} eleven", line=3),  # of 10 shingles 9 are shared: 8 of the text, 1 answer
    ]
    kept, dropped = dropped_of(rows, threshold=0.9, n=3)
    assert kept == rows[:2]
    assert dropped == [Dropped(f"{3:016x}", "s", 3, "near_duplicate", "near s:1, Jaccard 0.9")]
    assert dropped_of(rows, threshold=0.91, n=3) == (rows, [])


def test_the_system_message_counts_as_frame_not_as_text(dropped_of):
    frame = " ".join(f"rule{i}" for i in range(200))
    rows = [
        talk("cancel my order", "yes", system=frame, line=1),
        talk("where is my parcel", "no", system=frame, line=2),
        talk("cancel my order", "yes", system="pirate", line=3),
        talk("cancel my order!", "yes", system=frame, line=4),
    ]
    kept, dropped = dropped_of(rows, threshold=0.5, n=2)
    assert [row.line for row in kept] == [1, 2, 3]
    assert [row.detail for row in dropped] == ["near s:1, Jaccard 0.75"]


def test_other_fields_of_a_message_count():
    calls = [{"function": {"name": "f", "arguments": {"city": city}}} for city in ("Oslo", "Rome")]
    rows = [
        Conversation("x", "s", [{"role": "assistant", "content": None, "tool_calls": [call]}], line)
        for line, call in enumerate(calls, start=1)
    ]
    one, other = (conversation_shingles(row, 1) for row in rows)
    assert 0 < jaccard(one, other) < 1
    assert len(one - other) == 1


def test_rows_that_differ_in_what_is_trained_stay(dropped_of):
    rows = [talk(WORDS, line=1), talk(WORDS, line=2, train=False), talk(WORDS, line=3, weight=0)]
    assert dropped_of(rows, threshold=0.1, n=3) == (rows, [])


SOUPS = st.lists(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8).map(" ".join), max_size=25
)


@settings(deadline=None)  # a busy machine is no fault
@given(texts=SOUPS, threshold=st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_what_is_dropped_is_alike_to_an_earlier_row_that_stays(dropped_of, texts, threshold):
    rows = [talk(text, line=line) for line, text in enumerate(texts, start=1)]
    kept, dropped = dropped_of(rows, threshold=threshold, n=1)
    assert sorted([row.line for row in kept] + [row.line for row in dropped]) == [
        row.line for row in rows
    ]
    staying = {row.line: conversation_shingles(row, 1) for row in kept}
    for gone in dropped:
        number = int(gone.detail.split(":")[1].split(",")[0])
        assert number < gone.line
        shared = jaccard(staying[number], conversation_shingles(rows[gone.line - 1], 1))
        assert shared >= threshold


def test_rows_of_one_frame_take_no_time(dropped_of):
    """Planted: MinHash bands compare nearly all pairs of these, in the square of the rows."""
    frame = " ".join(f"rule{i}" for i in range(60))
    rows = [
        talk(f"{frame} " + " ".join(f"{i} {k}" for k in range(12)), line=i) for i in range(2000)
    ]
    kept, dropped = dropped_of(rows, threshold=0.8, n=3)
    assert (len(kept), dropped) == (2000, [])
