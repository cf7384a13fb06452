"""Parquet: texts stay texts, columns that JSON cannot hold are refused or left out by name."""

import datetime
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hashtune.data import columns
from hashtune.data.columns import rows_of_parquet
from hashtune.data.lines import Log


@pytest.fixture
def read(tmp_path):
    def run(table: pa.Table | bytes, needed=(), used=None):
        path = tmp_path / "d.parquet"
        if isinstance(table, bytes):
            path.write_bytes(table)
        else:
            pq.write_table(table, path, row_group_size=100)
        log = Log("d.parquet")
        return list(rows_of_parquet(path, log, needed=needed, used=used)), log

    return run


def told(log) -> list[str]:
    return [str(finding).split("\n")[0] for finding in log.findings]


def test_values_stay_as_they_are_and_rows_count_from_one(read):
    table = pa.table({"text": [f"0050{i}" for i in range(300)], "n": list(range(300))})
    rows, log = read(table, needed=("text",))
    assert [row.line for row in rows] == list(range(1, 301))
    assert rows[0].value == {"text": "00500", "n": 0}
    assert rows[299].value == {"text": "0050299", "n": 299}
    assert (log.findings, log.notes) == ([], [])


def test_texts_of_every_encoding_are_texts(read):
    words = ["2024-01-05", "a\u2028b"]
    table = pa.table(
        {
            "plain": words,
            "large": pa.array(words, pa.large_string()),
            "dictionary": pa.array(words).dictionary_encode(),
        }
    )
    rows, log = read(table)
    assert [list(row.value.values()) for row in rows] == [[word] * 3 for word in words]
    assert log.findings == []


def test_a_needed_column_without_a_json_type_is_refused_by_name(read):
    day = datetime.datetime(2024, 1, 5)
    rows, log = read(pa.table({"text": ["x"], "output": [day]}), needed=("text", "output"))
    assert rows == []
    assert told(log) == [
        "d.parquet: column 'output' is timestamp[us], no JSON type [column-type]",
    ]


def test_an_unused_column_without_a_json_type_is_left_out_by_name(read):
    day = datetime.date(2024, 1, 5)
    rows, log = read(pa.table({"text": ["x"], "day": [day], "raw": [b"y"]}), needed=("text",))
    assert [row.value for row in rows] == [{"text": "x"}]
    assert log.findings == []
    assert log.notes == [
        "column 'day' left out: date32[day] is no JSON type",
        "column 'raw' left out: binary is no JSON type",
    ]


def test_a_column_that_the_schema_may_read_is_never_left_out(read):
    """Planted: without its group column a file's rows would be split one by one, and leak."""
    day = datetime.datetime(2024, 1, 5)
    table = pa.table({"text": ["x"], "group": [day], "seen": [day]})
    rows, log = read(table, needed=("text",), used={"text", "group"})
    assert rows == []
    assert told(log) == ["d.parquet: column 'group' is timestamp[us], no JSON type [column-type]"]
    assert log.notes == ["column 'seen' left out: timestamp[us] is no JSON type"]


def test_nan_in_a_column_that_is_not_read_is_null(read):
    values = pa.array([float("nan"), 1.0, float("-inf")])
    rows, log = read(pa.table({"text": ["x", "y", "z"], "score": values}), used={"text"})
    assert [row.value["score"] for row in rows] == [None, 1.0, None]
    assert log.findings == []


@pytest.mark.parametrize("place", ["column", "list", "struct"])
def test_the_size_of_a_row_is_not_that_of_its_dictionary(read, monkeypatch, place):
    """Planted: sliced, a dictionary array still counts every value that any row has."""
    monkeypatch.setattr(columns, "MAX_LINE_BYTES", 5000)
    words = [f"{number:02}" * 500 for number in range(50)]
    texts = pa.array(words).dictionary_encode()
    array = {
        "column": texts,
        "list": pa.ListArray.from_arrays(list(range(51)), texts),
        "struct": pa.StructArray.from_arrays([texts], ["s"]),
    }[place]
    rows, log = read(pa.table({"text": array}))
    shown = {"column": words, "list": [[w] for w in words], "struct": [{"s": w} for w in words]}
    assert [row.value["text"] for row in rows] == shown[place]
    assert log.findings == []


def test_a_null_of_a_struct_is_an_absent_field_but_a_null_column_stays(read):
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    messages = [{"role": "user", "content": "u"}, call]
    table = pa.table({"messages": [messages], "group": pa.array([None], pa.string())})
    rows, _ = read(table)
    assert rows[0].value == {"messages": messages, "group": None}


def test_tool_arguments_grow_no_fields_of_other_calls(read):
    """In the column's one struct type each call has the arguments of all."""
    calls = [{"name": "f", "arguments": {"content": "x"}}, {"name": "g", "arguments": {"n": 1}}]
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": calls}]
    rows, _ = read(pa.table({"messages": [messages]}))
    answer = rows[0].value["messages"][1]
    assert answer == {"role": "assistant", "content": None, "tool_calls": calls}


def test_nan_and_bytes_that_are_not_utf8_name_their_row(read):
    bad = pa.array([b"x", b"caf\xe9", b"y"]).view(pa.string())
    table = pa.table({"text": bad, "n": [1.0, 2.0, float("nan")]})
    rows, log = read(table)
    assert [row.line for row in rows] == [1]
    assert told(log) == [
        "d.parquet:2: byte 0xE9 in a text is not UTF-8 [not-utf8]",
        "d.parquet:3: n: NaN or Infinity is no JSON value [not-a-number]",
    ]


def test_a_missing_column_and_two_of_one_name_are_refused(read):
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    rows, log = read(table, needed=("b",))
    assert rows == []
    assert told(log) == [
        "d.parquet: columns 1 and 2 have one name, 'a' [columns]",
        "d.parquet: no column 'b'; known: a, a [missing-column]",
    ]


def test_a_row_above_the_limit_is_refused_with_its_size(read, monkeypatch):
    monkeypatch.setattr(columns, "MAX_LINE_BYTES", 1000)
    rows, log = read(pa.table({"text": ["x", "y" * 2000, "z"]}))
    assert [row.line for row in rows] == [1, 3]
    [finding] = log.findings
    assert (finding.rule, finding.line) == ("line-too-long", 2)


def test_a_damaged_name_of_a_column_is_a_finding(read, tmp_path):
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "whole.parquet", store_schema=False)
    rows, log = read((tmp_path / "whole.parquet").read_bytes().replace(b"text", b"te\xf4t"))
    assert rows == []
    [finding] = log.findings
    assert (finding.rule, finding.message.startswith("Parquet is damaged")) == ("not-parquet", True)


@pytest.mark.parametrize("keep", [4, 100, -5])
def test_a_damaged_file_is_a_finding(read, tmp_path, keep):
    pq.write_table(pa.table({"text": ["x" * 1000]}), tmp_path / "whole.parquet")
    rows, log = read((tmp_path / "whole.parquet").read_bytes()[:keep])
    assert rows == []
    [finding] = log.findings
    assert (finding.rule, finding.message.startswith("Parquet is damaged")) == ("not-parquet", True)


def test_another_format_in_the_place_of_parquet_is_named(read):
    _, log = read(gzip.compress(b"PAR1"))
    assert told(log) == [
        "d.parquet: is gzip, expected Parquet (PAR1 is not its start) [not-parquet]"
    ]
    assert log.findings[0].fix == "unpack it, and pin what is in it"


def test_a_text_file_is_no_parquet(read):
    _, log = read(b'{"text": "x"}\n')
    assert told(log) == ["d.parquet: is not Parquet (PAR1 is not its start) [not-parquet]"]
