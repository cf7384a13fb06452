"""A declared JSON array: values as written, every broken element named by line and place."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.data import json_array
from hashtune.data.json_array import rows_of_array
from hashtune.data.lines import Log


def read(path, data: bytes):
    path.write_bytes(data)
    log = Log("d.json")
    return list(rows_of_array(path, log)), log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.json"


def told(log) -> list[str]:
    return [str(finding).split("\n")[0] for finding in log.findings]


def test_elements_are_rows_with_the_line_they_begin_in(path):
    data = b'\n[\n  {"a": "[1, {\\"}"},\n\n  {"b":\n    {"c": [1e2]}}, {"d": "\xe2\x80\xa8"}\n]\n'
    rows, log = read(path, data)
    assert [tuple(row) for row in rows] == [
        (3, {"a": '[1, {"}'}, 0),
        (5, {"b": {"c": [100.0]}}, 1),
        (6, {"d": "\u2028"}, 2),
    ]
    assert (log.findings, log.notes) == ([], [])


@pytest.mark.parametrize("data", [b"[]", b" [ \n ] \n"])
def test_an_empty_array_has_no_rows(path, data):
    rows, log = read(path, data)
    assert (rows, log.findings) == ([], [])


def test_every_broken_element_is_told_in_one_run(path):
    data = b"""[{"ok": 1}, {"a": NaN}, 7,
{"b": 1,
 "b": 2},
{'c': 1}, {"d": "caf\xe9"}, {"e": "\\ud83d"}, , {"f": 1,}, {"ok": 2},]x"""
    rows, log = read(path, data)
    assert [(row.element, row.value) for row in rows] == [(0, {"ok": 1}), (9, {"ok": 2})]
    assert told(log) == [
        "d.json:1: [1]: column 7: NaN is no JSON value [not-a-number]",
        "d.json:1: [2]: expected an array of objects, got number in it [not-an-object]",
        "d.json:2: [3]: line 2 of the element, column 2: key 'b' given twice [duplicate-key]",
        "d.json:4: [4]: column 2: single quote; JSON strings stand in double quotes [json]",
        "d.json:4: [5]: byte 0xE9 at byte 66 of the file is not UTF-8 (cp1252?) [not-utf8]",
        "d.json:4: [6]: column 7: lone surrogate U+D83D, half of a character [lone-surrogate]",
        "d.json:4: [7]: two commas in a row [json]",
        "d.json:4: [8]: column 9: trailing comma [json]",
        "d.json:4: [10]: trailing comma [json]",
        "d.json: extra data after the array [json]",
    ]


@pytest.mark.parametrize("cut", [1, 5, 10, 12, 17, 22, 23])
def test_a_cut_off_array_is_named(path, cut):
    whole = b'[{"a": "x"}, {"b": "y"}]'
    rows, log = read(path, whole[:cut])
    assert len(rows) == (cut >= 12)
    [finding] = log.findings
    assert finding.rule == "cut-off-line"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "file starts with an object, expected an array of objects"),
        (b"", "file is empty, expected a JSON array of objects"),
        (b"text", "file starts with b't', expected a JSON array of objects"),
        (b"\x1f\x8b", "is gzip, expected UTF-8 text with a JSON array of objects"),
    ],
)
def test_what_is_no_array_is_named(path, data, message):
    rows, log = read(path, data)
    assert rows == []
    assert [(f.rule, f.line, f.message) for f in log.findings] == [("not-json", 1, message)]


def test_an_element_above_the_limit_is_refused_and_the_next_is_read(path, monkeypatch):
    monkeypatch.setattr(json_array, "CHUNK", 16)
    monkeypatch.setattr(json_array, "MAX_LINE_BYTES", 64)
    data = b'[{"a": "' + b"x\n" * 100 + b'"},\n {"b": 1},\n {"c": ' + b"[" * 50
    rows, log = read(path, data)
    assert [tuple(row) for row in rows] == [(102, {"b": 1}, 1)]
    assert [(f.rule, f.line, f.field) for f in log.findings] == [
        ("line-too-long", 1, "[0]"),
        ("cut-off-line", 103, "[2]"),
    ]
    assert log.findings[0].message.startswith("element of 209 bytes")


OBJECTS = st.lists(
    st.dictionaries(st.text(), st.text() | st.lists(st.text() | st.integers()), max_size=3),
    max_size=5,
)


@given(rows=OBJECTS, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_reads_what_json_writes_whatever_the_chunks(rows, indent, ascii_only):
    data = json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for size in (1, 3, 1024):
            patch.setattr(json_array, "CHUNK", size)
            found, log = read(Path(folder) / "d.json", data)
            assert (log.findings, [row.value for row in found]) == ([], rows)
