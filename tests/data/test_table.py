"""Rows come back as they were added, the ledger names those that were dropped, memory is small."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashtune.data.cleaning import content_key
from hashtune.data.schemas import as_row
from hashtune.data.spill import READ_BYTES, Spill
from hashtune.data.table import KEY_BYTES, RECORD, Table
from hashtune.records import Conversation, Dropped


def talk(number, *, source="s", line=1, group=None, text="q"):
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "a"}]
    return Conversation(f"{number:016x}", source, messages, line, group)


def test_texts_come_back_and_leave_no_file(tmp_path):
    texts = ["", "a", "Jané\n\u2028", "x" * (READ_BYTES - 8), "y" * READ_BYTES, "z" * 10**6]
    with Spill(tmp_path / "new") as spill:
        places = [spill.put(text) for text in texts]
        assert [spill.get(place) for place in reversed(places)] == texts[::-1]
        assert spill.get(spill.put("later")) == "later"
        assert list((tmp_path / "new").iterdir()) == []


GROUPS = st.none() | st.text(max_size=3)


@settings(deadline=None)  # a busy machine is no fault
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.text(max_size=5), GROUPS), max_size=5))
def test_rows_come_back_as_they_were_added(table_of, found):
    rows = [
        talk(number, line=line, text=text, group=group)
        for line, (number, text, group) in enumerate(found)
    ]
    table = table_of(rows)
    assert [table.conversation(number) for number in range(len(rows))] == rows
    assert [table.written(number) for number in range(len(rows))] == [as_row(row) for row in rows]


def test_a_copy_has_an_id_of_its_own(table_of):
    table = table_of([talk(0xAB)])
    assert table.written(0, 3)["id"] == "00000000000000ab#3"
    assert table.conversation(0, 3).id == "00000000000000ab#3"


def test_the_ledger_follows_source_name_line_and_reason(table_of):
    rows = [talk(1, source="b", line=9), talk(2, source="a", line=5), talk(3, source="a", line=2)]
    rows += [talk(4, source="a", line=2), talk(5, source="a", line=1)]
    table = table_of(rows)
    table.drop(np.array([0, 2]), "weight")
    table.drop(1, "duplicate", "same as b:1")
    table.drop(3, "max_rows", "eval")
    assert list(table.ledger()) == [
        Dropped(f"{4:016x}", "a", 2, "max_rows", "eval"),
        Dropped(f"{3:016x}", "a", 2, "weight"),
        Dropped(f"{2:016x}", "a", 5, "duplicate", "same as b:1"),
        Dropped(f"{1:016x}", "b", 9, "weight"),
    ]
    assert list(table.kept()) == [4]
    assert table.dropped() == {"duplicate": 1, "max_rows": 1, "weight": 2}
    assert table.dropped("b") == {"weight": 1}
    assert table.dropped("none") == {}


def test_rows_dropped_before_they_were_compared_are_in_the_ledger(spill):
    table = Table(spill)
    table.add_dropped(Dropped("f" * 16, "s", 3, "blank", "output"))
    table.add(talk(1))
    assert list(table.ledger()) == [Dropped("f" * 16, "s", 3, "blank", "output")]
    assert list(table.kept()) == [1]


def test_rows_of_a_source(table_of):
    table = table_of([talk(1, source="a"), talk(2, source="b"), talk(3, source="a")])
    every = np.arange(3)
    assert list(table.of(every, "a")) == [0, 2]
    assert list(table.of(every, "c")) == []
    assert list(table.not_of(every, "a", "c")) == [1]


def test_no_row_is_added_once_the_columns_were_read(table_of):
    table = table_of([talk(1)])
    assert list(table.columns.id) == [1]
    with pytest.raises(BufferError):
        table.add(talk(2))


def test_memory_of_a_row_does_not_hold_its_messages(tmp_path):
    """Planted: rows of 2,000 characters."""
    assert RECORD.size + KEY_BYTES == 59

    def held(count):
        tracemalloc.start()
        with Spill(tmp_path) as spill:
            table = Table(spill)
            for number in range(count):
                row = talk(number, line=number, text="x" * 2000)
                table.add(row, content_key(row))
            bytes_held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return bytes_held

    few, many = held(1000), held(3000)
    assert (many - few) / 2000 < 1.2 * 59  # a buffer that grows is up to an eighth too large
