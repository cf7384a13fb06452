"""CSV and TSV: cells stay as written, and every broken record is named with its line."""

import pytest

from hashtune.data import lines as limits
from hashtune.data import tables
from hashtune.data.lines import Log
from hashtune.data.tables import rows_of_table


def read(tmp_path, data: bytes, file_format="csv", needed=()):
    path = tmp_path / "d.csv"
    path.write_bytes(data)
    log = Log("data/d.csv")
    return list(rows_of_table(path, log, file_format, needed=needed)), log


def told(log) -> list[tuple[str, int | None, str]]:
    assert all(finding.file == "data/d.csv" for finding in log.findings)
    return [(finding.rule, finding.line, finding.message) for finding in log.findings]


def test_cells_stay_the_text_that_is_written(tmp_path):
    data = "a,b,c\n00501,2024-01-05,True\n1e5, null ,\u2028x\u0085\nNaN,,'q'\n"
    rows, log = read(tmp_path, data.encode())
    assert [tuple(row) for row in rows] == [
        (2, {"a": "00501", "b": "2024-01-05", "c": "True"}, None),
        (3, {"a": "1e5", "b": " null ", "c": "\u2028x\u0085"}, None),
        (4, {"a": "NaN", "b": "", "c": "'q'"}, None),
    ]
    assert (log.findings, log.notes) == ([], [])


def test_a_quoted_cell_may_hold_line_ends_quotes_and_delimiters(tmp_path):
    data = b'a,b\r\n"x\r\ny\n","say ""hi"", you"\r\n1,2\r\n\r\n3,4'
    rows, log = read(tmp_path, data)
    assert [(row.line, row.value) for row in rows] == [
        (2, {"a": "x\r\ny\n", "b": 'say "hi", you'}),
        (5, {"a": "1", "b": "2"}),
        (7, {"a": "3", "b": "4"}),
    ]
    assert log.notes == ["1 blank lines skipped, the first is line 6"]


def test_tabs_separate_in_tsv(tmp_path):
    rows, log = read(tmp_path, b'a\tb\n1,5\t"x\ty"\n', "tsv")
    assert ([row.value for row in rows], log.findings) == ([{"a": "1,5", "b": "x\ty"}], [])


def test_a_wrong_number_of_cells_names_both_counts_in_every_line(tmp_path):
    rows, log = read(tmp_path, b"a,b,c\n1,2,3\n1,2\n1,2,3,4\nx\n4,5,6\n")
    assert [row.line for row in rows] == [2, 6]
    assert told(log) == [
        ("cells", 3, "2 cells, the header has 3"),
        ("cells", 4, "4 cells, the header has 3"),
        ("cells", 5, "1 cell, the header has 3"),
    ]


def test_a_header_with_a_name_given_twice_or_none_is_refused(tmp_path):
    rows, log = read(tmp_path, b"\na,,a, \n1,2,3,4\n")
    assert rows == []
    assert told(log) == [
        ("columns", 2, "column 2 has no name"),
        ("columns", 2, "columns 1 and 3 have one name, 'a'"),
        ("columns", 2, "column 4 has no name"),
    ]


def test_a_missing_column_is_one_finding_with_the_nearest_name(tmp_path):
    rows, log = read(tmp_path, b"text,categry\nx,y\nz,w\n", needed=("text", "category"))
    assert rows == []
    assert told(log) == [
        ("missing-column", 1, "no column 'category'; did you mean 'categry'?"),
    ]


@pytest.mark.parametrize(("data", "sign"), [(b"a;b\n1;2\n", "';'"), (b"a\tb\n1\t2\n", r"'\t'")])
def test_another_delimiter_is_named(tmp_path, data, sign):
    rows, log = read(tmp_path, data)
    assert rows == []
    assert told(log) == [("columns", 1, f"one column only, with {sign} in its name")]


def test_quotes_are_strict_and_the_next_record_is_read(tmp_path):
    rows, log = read(tmp_path, b'a,b\n"x"y,1\n2,3\nx\ry,4\n"5,6\n')
    assert [(row.line, row.value) for row in rows] == [(3, {"a": "2", "b": "3"})]
    assert told(log) == [
        ("csv", 2, "',' expected after '\"'"),
        ("csv", 4, "carriage return in a cell without quotes"),
        ("cut-off-line", 5, "a quoted cell is not closed before the end"),
    ]


def test_bytes_are_judged_as_in_json_lines(tmp_path):
    bom = b"\xef\xbb\xbf"
    rows, log = read(tmp_path, bom + b"a,b\n1,caf\xe9\n" + bom + b"2,3\n4,5\x00\n6,7\n")
    assert [(row.line, row.value) for row in rows] == [(5, {"a": "6", "b": "7"})]
    assert log.notes == ["byte order mark at the start removed"]
    assert told(log) == [
        ("not-utf8", 2, "byte 0xE9 at byte 12 of the file is not UTF-8 (cp1252?)"),
        ("bom-in-middle", 3, "byte order mark at byte 14, not at the start of the file"),
        ("not-utf8", 4, "NUL byte at byte 24 (UTF-16 without a byte order mark?)"),
    ]


def test_a_bad_byte_in_a_quoted_cell_hides_its_record_only(tmp_path):
    rows, log = read(tmp_path, b'a,b\n"x\ncaf\xe9\n",1\n2,3\n')
    assert [(row.line, row.value) for row in rows] == [(5, {"a": "2", "b": "3"})]
    assert [(f.rule, f.line) for f in log.findings] == [("not-utf8", 3)]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("a,b\n".encode("utf-16"), "is UTF-16 (little-endian byte order mark FF FE)"),
        (b"PAR1\x15\x04", "is Parquet"),
        (b"PK\x03\x04", "is zip"),
    ],
)
def test_other_formats_are_named(tmp_path, data, name):
    rows, log = read(tmp_path, data)
    [(rule, line, message)] = told(log)
    assert (rows, rule, line) == ([], "not-csv", 1)
    assert message == f"{name}, expected UTF-8 text with comma-separated values"


def test_utf16_without_a_mark_is_one_finding(tmp_path):
    rows, log = read(tmp_path, "a,b\n1,2\n".encode("utf-16-le"))
    assert rows == []
    assert [(f.rule, f.line) for f in log.findings] == [("not-utf8", 1)]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n"])
@pytest.mark.parametrize("data", [b'{"a": "x", "b": "y"}\n', b'[{"a": "x"}]\n'])
def test_json_declared_as_a_table_is_named(tmp_path, start, data):
    """Its first line was a header with odd names, or a fault of quotes."""
    rows, log = read(tmp_path, start + data)
    message = "begins as JSON does, expected UTF-8 text with comma-separated values"
    assert (rows, told(log)) == ([], [("not-csv", 1, message)])
    assert log.findings[0].fix == "declare format: jsonl, or json for an array"


def test_a_missing_quote_stops_at_the_limit_of_a_record(tmp_path, monkeypatch):
    """Otherwise the rest of the file would be one cell in memory."""
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 100)
    rows, log = read(tmp_path, b'a,b\n1,2\n"3,4\n' + b"5,6\n" * 1000)
    assert [row.line for row in rows] == [2]
    [(rule, line, message)] = told(log)
    assert (rule, line) == ("line-too-long", 27)
    assert log.findings[0].fix == "the record begins at line 3: is a quote missing there?"
    assert message.startswith("record of 101 bytes so far")


def test_a_line_above_the_limit_is_refused_with_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", 50)
    rows, log = read(tmp_path, b"a,b\n1,2\n" + b"x" * 60 + b",y\n3,4\n")
    assert [row.line for row in rows] == [2]
    assert told(log)[0][:2] == ("line-too-long", 3)
    assert told(log)[0][2].startswith("line of 63 bytes")


def test_a_long_cell_below_the_limit_is_read(tmp_path):
    rows, log = read(tmp_path, b'a,b\n"' + b"x" * 1_000_000 + b'",1\n')
    assert ([len(row.value["a"]) for row in rows], log.findings) == ([1_000_000], [])


def test_a_header_in_the_middle_is_two_files_joined(tmp_path):
    """Read as a row, the names of the columns would be trained as an answer."""
    rows, log = read(tmp_path, b"a,b\n1,2\na,b\n3,4\n")
    assert [row.line for row in rows] == [2, 4]
    assert told(log) == [("header-again", 3, "the header again: two files were joined")]
