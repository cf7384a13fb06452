"""Every damaged file of cases.md section 4, with the exact line, column and byte."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.data import readers
from hashtune.data.readers import read_jsonl
from hashtune.strict_json import StrictJsonError, parse_strict

SRC = Path(__file__).resolve().parents[2] / "src"
GOOD = b'{"a": "x"}\n'


def read(tmp_path, data: bytes):
    path = tmp_path / "d.jsonl"
    path.write_bytes(data)
    return read_jsonl(path, shown="data/d.jsonl")


def told(reading) -> list[tuple[str, int | None, str]]:
    assert all(finding.file == "data/d.jsonl" for finding in reading.findings)
    return [(finding.rule, finding.line, finding.message) for finding in reading.findings]


def test_good_rows_keep_their_values(tmp_path):
    text = (
        '{"s": "2024-01-05", "n": 1e2, "b": true, "z": "00501"}\n\n \t\r\n{"s": "a\u2028b\u0085c"}'
    )
    reading = read(tmp_path, text.encode())
    assert reading.rows == [
        (1, {"s": "2024-01-05", "n": 100.0, "b": True, "z": "00501"}),
        (4, {"s": "a\u2028b\u0085c"}),
    ]
    assert reading.findings == []
    assert reading.notes == ["2 blank lines skipped, the first is line 2"]


def test_bom_at_start_is_removed_and_noted(tmp_path):
    reading = read(tmp_path, b"\xef\xbb\xbf" + GOOD * 2)
    assert reading.rows == [(1, {"a": "x"}), (2, {"a": "x"})]
    assert reading.findings == []
    assert reading.notes == ["byte order mark at the start removed"]


def test_bom_in_the_middle_is_refused(tmp_path):
    reading = read(tmp_path, GOOD + b"\xef\xbb\xbf" + GOOD)
    message = "byte order mark at byte 11, not at the start of the file"
    assert told(reading) == [("bom-in-middle", 2, message)]
    joined = read(tmp_path, GOOD.rstrip() + b"\xef\xbb\xbf" + GOOD)
    message = "column 11: byte order mark (U+FEFF) between two values"
    assert told(joined) == [("json", 1, message)]
    assert read(tmp_path, b"\xef\xbb\xbf" * 2 + GOOD).findings[0].rule == "bom-in-middle"


def test_windows_encoding_names_byte_and_offset(tmp_path):
    reading = read(tmp_path, GOOD + b'{"a": "caf\xe9"}\n' + GOOD)
    message = "byte 0xE9 at byte 21 of the file is not UTF-8 (cp1252?)"
    assert told(reading) == [("not-utf8", 2, message)]
    assert [line for line, _ in reading.rows] == [1, 3]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ('{"a": 1}\n'.encode("utf-16"), "UTF-16 (little-endian byte order mark FF FE)"),
        (b"\xfe\xff" + '{"a": 1}\n'.encode("utf-16-be"), "UTF-16 (big-endian"),
        ('{"a": 1}\n'.encode("utf-32"), "UTF-32 (little-endian"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PAR1\x15\x04", "Parquet"),
        (bz2.compress(GOOD), "bzip2"),
        (lzma.compress(GOOD), "xz"),
        (b"ARROW1\0\0", "Arrow IPC"),
        (b"SQLite format 3\0", "SQLite"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
    ],
)
def test_other_formats_are_named(tmp_path, data, name):
    [(rule, line, message)] = told(read(tmp_path, data))
    assert (rule, line) == ("not-jsonl", 1)
    assert message.startswith(f"is {name}")


def test_utf16_without_bom_is_one_finding(tmp_path):
    reading = read(tmp_path, '{"a": 1}\n{"a": 2}\n'.encode("utf-16-le"))
    message = "NUL byte at byte 1 (UTF-16 without a byte order mark?)"
    assert told(reading) == [("not-utf8", 1, message)]


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        (
            b'{"a": 1}\r{"a": 2}\r',
            "end lines with \\n (tr '\\r' '\\n'); a carriage return ends none",
        ),
        (b'{"a": 1}{"a": 2}\n', readers.ONE_PER_LINE),
        (b'{"a": 1},\n', readers.ONE_PER_LINE),
        (b'{"a": 1,}\n', None),
    ],
)
def test_two_values_in_a_line_are_told_what_ends_a_line(tmp_path, data, fix):
    [finding] = read(tmp_path, data).findings
    assert (finding.rule, finding.line, finding.fix) == ("json", 1, fix)


def test_a_packed_file_is_told_to_unpack(tmp_path):
    [finding] = read(tmp_path, gzip.compress(GOOD)).findings
    assert finding.fix == "unpack it, and pin what is in it"


def test_all_bad_lines_in_one_run(tmp_path):
    lines = [
        '{"a": 1,}',
        '{"a": NaN}',
        '{"a": [-Infinity]}',
        '{"a": "\\ud83d"}',
        "{'a': 1}",
        '{"b": {"a": 1, "\\u0061": 2}}',
        '{"a": 1e999}',
        '{"ok": "\\ud83d\\ude00 NaN \\\\ud83d"}',
        "[1, 2]",
        "7",
        '{"a": 1} {"a": 2}',
        "{" * 101,
        '{"a": "\t"}',
        '{"a": ' + "9" * 4001 + "}",
        '{"instruction": "c", "outp',
    ]
    reading = read(tmp_path, "\n".join(lines).encode())
    assert told(reading) == [
        ("json", 1, "column 9: trailing comma"),
        ("not-a-number", 2, "column 7: NaN is no JSON value"),
        ("not-a-number", 3, "column 8: -Infinity is no JSON value"),
        ("lone-surrogate", 4, "column 7: lone surrogate U+D83D, half of a character"),
        ("json", 5, "column 2: single quote; JSON strings stand in double quotes"),
        ("duplicate-key", 6, "column 16: key 'a' given twice"),
        ("number-range", 7, "column 7: number out of range"),
        ("not-an-object", 9, "expected one JSON object per line, got array"),
        ("not-an-object", 10, "expected one JSON object per line, got number"),
        ("json", 11, "column 10: extra data"),
        ("nesting", 12, "column 101: nested deeper than 100 levels"),
        ("json", 13, "column 8: invalid control character at"),
        ("number-range", 14, "column 7: number out of range"),
        (
            "cut-off-line",
            15,
            "the last line is cut off (column 22: unterminated string starting at)",
        ),
    ]
    assert reading.rows == [(8, {"ok": "\U0001f600 NaN \\ud83d"})]


@pytest.mark.parametrize(
    "end", [b'{"a": tru', b'{"a": 1', b'{"a": {"b": 1}', b'{"a": "x}', b"{", b'{"a": "\xf0\x9f']
)
def test_cut_off_last_line_is_named(tmp_path, end):
    [(rule, line, _)] = told(read(tmp_path, GOOD + end))
    assert (rule, line) == ("cut-off-line", 2)
    [(rule, line, _)] = told(read(tmp_path, GOOD + end + b"\n" + GOOD))
    assert rule in {"json", "not-utf8"}
    assert line == 2


@pytest.mark.parametrize("data", [b'[{"a": 1}, {"a": 2}]\n', b'[\n{"a": 1},\n{"a": 2}\n]\n'])
def test_array_file_is_one_finding_with_a_hint(tmp_path, data):
    reading = read(tmp_path, data)
    message = "file is a JSON array, expected one object per line"
    assert told(reading) == [("array", 1, message)]
    assert "jq -c" in str(reading.findings[0].fix)


def test_pretty_printed_object_is_one_finding(tmp_path):
    reading = read(tmp_path, b'{\n  "a": 1\n}\n')
    assert told(reading) == [("json", 1, "one JSON object is spread over several lines")]


def test_deep_nesting_is_refused_not_a_crash(tmp_path):
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    [(rule, line, message)] = told(read(tmp_path, deep.encode()))
    assert (rule, line) == ("nesting", 1)
    assert message == "column 106: nested deeper than 100 levels"
    wide = {"a": [[] for _ in range(500)]}
    assert read(tmp_path, json.dumps(wide).encode()).rows == [(1, wide)]


def test_long_line_is_refused_and_the_next_is_read(tmp_path):
    size = readers.MAX_LINE_BYTES
    row = b'{"a": "' + b"x" * (size - 10) + b'"}\n'  # exactly the limit
    assert [line for line, _ in read(tmp_path, row + GOOD).rows] == [1, 2]
    reading = read(tmp_path, GOOD + b'{"a": "' + b"x" * size + b'"}\n' + b'{"b": caf\xe9}\n')
    assert [(line, row) for line, row in reading.rows] == [(1, {"a": "x"})]
    too_long, bad = told(reading)
    message = "line of 16,777,226 bytes, the limit is 16,777,216 bytes (16 MiB)"
    assert too_long == ("line-too-long", 2, message)
    offset = len(GOOD) + size + 10 + 9
    assert bad == ("not-utf8", 3, f"byte 0xE9 at byte {offset} of the file is not UTF-8 (cp1252?)")


def test_reading_does_not_depend_on_the_locale(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_bytes('{"a": "café"}\n'.encode())
    code = (
        "import sys; from pathlib import Path; from hashtune.data.readers import read_jsonl; "
        "print(ascii(read_jsonl(Path(sys.argv[1]), shown='d').rows))"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC), "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", code, str(path)]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert shown == "[(1, {'a': 'caf\\xe9'})]\n"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=JSON, ascii_only=st.booleans())
def test_strict_parser_reads_what_json_writes(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_strict(text) == value


@given(text=st.text(alphabet='{}[]":,\\udD8a1eN-. ', max_size=30))
def test_strict_parser_refuses_or_agrees_with_json(text):
    try:
        value = parse_strict(text)
    except StrictJsonError as error:
        assert 1 <= error.column <= len(text) + 1
    else:
        assert json.loads(text) == value
