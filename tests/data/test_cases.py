"""The known faults of data files (section 4 of the project's list of cases), with the right value
of each, through the readers and schemas that prepare uses."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hashtune import writers
from hashtune.data.cleaning import Policy, deduplicate
from hashtune.data.formats import read_rows
from hashtune.data.lines import MAX_LINE_BYTES, Log
from hashtune.data.schemas import as_row
from hashtune.data.sources import DataFile, Loaded, load
from hashtune.data.split import split
from hashtune.records import conversation_schema

SRC = Path(__file__).resolve().parents[2] / "src"
BOM = b"\xef\xbb\xbf"
GOOD = b'{"instruction":"a","output":"x"}\n'
STOP = Policy("error", 0.01)
USER = {"role": "user", "content": "u"}
ANSWER = {"role": "assistant", "content": "a"}


@pytest.fixture
def read(tmp_path):
    """Loads the bytes of one file as prepare does."""

    def run(data, *, file_format="jsonl", schema="instruction", policy=STOP) -> Loaded:
        (tmp_path / "d").write_bytes(data)
        pin = writers.sha256_file(tmp_path / "d")
        file = DataFile("s", "d", pin, schema, "data.sources[0]", format=file_format)
        return load(file, tmp_path, policy)

    return run


def told(loaded: Loaded) -> list[str]:
    return [str(finding).split("\n")[0] for finding in loaded.findings]


def texts(loaded: Loaded) -> list[tuple[str, str]]:
    return [
        (row.messages[-2]["content"], row.messages[-1]["content"]) for row in loaded.conversations
    ]


def test_c34_a_bom_at_the_start_is_removed_and_noted_and_one_in_the_middle_refused(read):
    loaded = read(BOM + GOOD * 2)
    assert (loaded.rows, loaded.findings) == (2, [])
    assert texts(loaded) == [("a", "x")] * 2
    assert loaded.extra == {}  # the first key is instruction, not \ufeffinstruction
    assert loaded.notes == ["byte order mark at the start removed"]
    assert told(read(GOOD * 2 + BOM + GOOD)) == [
        "d:3: byte order mark at byte 66, not at the start of the file [bom-in-middle]"
    ]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_c34_the_first_column_of_a_csv_has_no_bom_in_its_name(read, ends):
    table = ends.join(["instruction,output", "a,x", ""]).encode()
    loaded = read(BOM + table, file_format="csv")
    assert (texts(loaded), loaded.findings) == ([("a", "x")], [])
    assert told(read(table + BOM + table, file_format="csv")) == [
        f"d:3: byte order mark at byte {len(table)}, not at the start of the file [bom-in-middle]"
    ]


def test_c36_a_byte_of_cp1252_is_named_with_line_offset_and_value(read):
    loaded = read(GOOD + b'{"instruction":"caf\xe9","output":"x"}\n')
    assert told(loaded) == [
        "d:2: byte 0xE9 at byte 52 of the file is not UTF-8 (cp1252?) [not-utf8]"
    ]
    assert told(read(b"instruction,output\ncaf\xe9,x\n", file_format="csv")) == [
        "d:2: byte 0xE9 at byte 22 of the file is not UTF-8 (cp1252?) [not-utf8]"
    ]


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "tsv"])
def test_c36_a_utf16_file_is_named_by_its_bom(read, file_format):
    [finding] = read(GOOD.decode().encode("utf-16"), file_format=file_format).findings
    assert (finding.rule, finding.line) == (f"not-{file_format}", 1)
    assert finding.message.startswith("is UTF-16 (little-endian byte order mark FF FE)")


def test_c36_the_ids_do_not_depend_on_the_locale(tmp_path):
    rows = '{"instruction":"café","output":"naïve ☃"}\n'
    (tmp_path / "d.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "d.csv").write_text("instruction,output\ncafé,naïve ☃\n", encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from hashtune.data.sources import *\n"
        "for f in ('jsonl', 'csv'):\n"
        "    d = DataFile('s', f'd.{f}', None, 'instruction', 'f', pinned=False, format=f)\n"
        "    print([c.id for c in load(d, Path(sys.argv[1]), Policy('error', 0)).conversations])"
    )
    shown = set()
    for more in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}):
        env = {**os.environ, "PYTHONPATH": str(SRC), **more}
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        shown |= set(done.stdout.split("\n")[:2])
    [ids] = shown
    assert len(json.loads(ids.replace("'", '"'))) == 1


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "tsv"])
def test_c37_line_separators_of_unicode_stay_inside_their_text(
    read, table_of, tmp_path, mark, file_format
):
    text = f"a{mark}b"
    row = json.dumps({"instruction": text, "output": "x"}, ensure_ascii=False)
    tab = "," if file_format == "csv" else "\t"
    data = {"jsonl": row, "json": f"[{row}]"}.get(
        file_format, f"instruction{tab}output\n{text}{tab}x\n"
    )
    loaded = read(data.encode(), file_format=file_format)
    assert (loaded.rows, texts(loaded), loaded.findings) == (1, [(text, "x")], [])
    assert [len(user) for user, _ in texts(loaded)] == [3]
    # dedup, split and both writers give it back
    table = table_of(loaded.conversations)
    parts = split(table, deduplicate(table, table.kept()), eval_fraction=0.0, test_fraction=0.0)
    written = tmp_path / "train.parquet"
    rows = [table.written(row) for row in parts.train]
    writers.write_parquet(written, rows, conversation_schema())
    [back] = writers.read_parquet(written)
    assert json.loads(back["messages"])[0]["content"] == text
    writers.write_jsonl(tmp_path / "out.jsonl", [back, back])
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 2
    assert writers.read_jsonl(tmp_path / "out.jsonl") == [back, back]


def test_c38_another_schema_in_a_later_line_is_refused(read):
    first = json.dumps({"messages": [USER, ANSWER]}).encode() + b"\n"
    assert told(read(first + GOOD, schema="messages")) == [
        "d:2: schema instruction, file is declared as messages [mixed-schema]"
    ]
    share = b'{"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}\n'
    pair = b'{"prompt":"u","completion":"a"}\n'
    assert told(read(GOOD + share + pair + first)) == [
        "d:2: schema sharegpt, file is declared as instruction [mixed-schema]",
        "d:3: schema prompt_completion, file is declared as instruction [mixed-schema]",
        "d:4: schema messages, file is declared as instruction [mixed-schema]",
    ]
    joined = b'{"messages":null,"instruction":"u","output":"a"}\n'  # as datasets joins them
    assert told(read(first + joined, schema="messages")) == [
        "d:2: schema instruction, file is declared as messages [mixed-schema]"
    ]


def test_c39_an_extra_field_may_change_its_type_late(read):
    rows = b'{"instruction":"a","output":"x","meta":null}\n' * 2000
    loaded = read(rows + b'{"instruction":"a","output":"x","meta":{"src":"x"}}\n')
    assert (loaded.rows, loaded.findings, loaded.extra) == (2001, [], {"meta": 2001})


def test_c39_the_type_of_a_field_is_never_concluded_from_the_rows_before(tmp_path):
    """300,000 rows of null, where a reader that concludes types fails. Of the whole load that takes
    4 s, of the reader, which alone sees all rows of a file, 1 s."""
    rows = b'{"instruction":"a","output":"x","meta":null}\n' * 300_000
    (tmp_path / "d").write_bytes(rows + b'{"instruction":"a","output":"x","meta":{"src":"x"}}\n')
    log, count = Log("d"), 0
    for row in read_rows(tmp_path / "d", "jsonl", log, needed=()):
        count += 1
        assert row.line == count
    assert (count, log.findings) == (300_001, [])
    assert row.value == {"instruction": "a", "output": "x", "meta": {"src": "x"}}


def test_c39_a_number_where_a_text_belongs_is_refused(read):
    assert told(read(GOOD + b'{"instruction":"a","output":7}\n')) == [
        "d:2: output: expected string, got number [wrong-type]"
    ]
    table = pa.table({"instruction": ["a"], "output": [7]})
    assert told(read(parquet(table), file_format="parquet")) == [
        "d:1: output: expected string, got number [wrong-type]"
    ]


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


VALUES = ["2024-01-05", "2024-02-06", "00501", "True", "1e5", "null", "NaN", "1,5"]


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_c40_texts_that_look_like_other_values_stay_as_written(read, file_format):
    rows = [{"instruction": value, "output": value} for value in VALUES]
    written = {
        "jsonl": "\n".join(json.dumps(row) for row in rows).encode(),
        "json": json.dumps(rows).encode(),
        "csv": ("instruction,output\n" + "".join(f'"{v}","{v}"\n' for v in VALUES)).encode(),
        "tsv": ("instruction\toutput\n" + "".join(f"{v}\t{v}\n" for v in VALUES)).encode(),
        "parquet": parquet(pa.Table.from_pylist(rows)),
    }
    loaded = read(written[file_format], file_format=file_format)
    assert loaded.findings == []
    assert texts(loaded) == [(value, value) for value in VALUES]
    stored = [json.loads(str(as_row(row)["messages"])) for row in loaded.conversations]
    assert [messages[1]["content"] for messages in stored] == VALUES


C41 = (
    GOOD
    + b'{"instruction":"a","output":null}\n'
    + b'{"instruction":"a"}\n'
    + b'{"instruction":"a","output":"  "}\n'
)


def test_c41_null_missing_and_blank_are_three_findings(read):
    assert told(read(C41)) == [
        "d:2: output: null, expected string [null]",
        "d:3: output: missing [missing]",
        "d:4: output: blank [blank]",
    ]


def test_c41_dropped_rows_are_counted_by_reason_and_limited(read):
    first, *_ = told(read(C41, policy=Policy("drop", 0.01)))
    assert first == (
        "d: cleaning.max_drop_share: kept 1, dropped 3 (blank 1, missing 1, null 1): "
        "share 0.75 is above 0.01 [drop-share]"
    )
    loaded = read(C41, policy=Policy("drop", 0.75))
    assert (loaded.rows, len(loaded.conversations), loaded.findings) == (4, 1, [])
    assert [(row.line, row.reason) for row in loaded.dropped] == [
        (2, "null"),
        (3, "missing"),
        (4, "blank"),
    ]
    nothing, *_ = told(read(C41.removeprefix(GOOD), policy=Policy("drop", 1.0)))
    assert nothing.endswith("0 rows remain [no-rows]")


def test_c41_in_a_table_an_empty_cell_is_blank_and_an_absent_column_missing(read):
    table = b"instruction,output\na,x\na,\na,  \n"
    assert told(read(table, file_format="csv")) == [
        "d:3: output: blank [blank]",
        "d:4: output: blank [blank]",
    ]
    assert told(read(b"instruction\na\nb\n", file_format="csv")) == [
        "d:1: no column 'output'; known: instruction [missing-column]"
    ]
    table = pa.table({"instruction": ["a", "b"], "output": ["x", None]})
    assert told(read(parquet(table), file_format="parquet")) == [
        "d:2: output: null, expected string [null]"
    ]


def test_c43_every_broken_line_is_told_in_one_run(read):
    lines = [
        '{"instruction":"a","output":"x",}',
        '{"instruction":"a","output":NaN}',
        '{"instruction":"a","output":Infinity}',
        r'{"instruction":"a","output":"\ud83d"}',
        "{'instruction':'a','output':'x'}",
        '["a","x"]',
        '{"instruction":"a","output":"x"}',
        '{"instruction":"c","outp',
    ]
    loaded = read("\n".join(lines).encode())
    assert told(loaded) == [
        "d:1: column 33: trailing comma [json]",
        "d:2: column 29: NaN is no JSON value [not-a-number]",
        "d:3: column 29: Infinity is no JSON value [not-a-number]",
        "d:4: column 29: lone surrogate U+D83D, half of a character [lone-surrogate]",
        "d:5: column 2: single quote; JSON strings stand in double quotes [json]",
        "d:6: expected one JSON object per line, got array [not-an-object]",
        "d:8: the last line is cut off (column 20: unterminated string starting at) [cut-off-line]",
    ]
    assert loaded.rows == 1


def test_c43_an_array_is_read_only_if_it_is_declared(read):
    data = b"[" + GOOD.strip() + b",\n" + GOOD.strip() + b"]"
    assert told(read(data)) == ["d:1: file is a JSON array, expected one object per line [array]"]
    loaded = read(data, file_format="json")
    assert (texts(loaded), loaded.findings) == ([("a", "x")] * 2, [])
    assert told(read(GOOD, file_format="json")) == [
        "d:1: file starts with an object, expected an array of objects [not-json]"
    ]


LONG = 12 * 1024 * 1024


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "parquet"])
def test_c45_a_row_of_12_megabytes_is_a_row(read, file_format):
    long = "x" * LONG
    row = json.dumps({"instruction": "a", "output": long}).encode() + b"\n"
    data = {
        "jsonl": row + GOOD,
        "json": b"[" + row + b"," + GOOD + b"]",
        "csv": b"instruction,output\na,%b\na,x\n" % long.encode(),
        "parquet": parquet(pa.table({"instruction": ["a", "a"], "output": [long, "x"]})),
    }[file_format]
    loaded = read(data, file_format=file_format)
    assert (loaded.rows, loaded.findings) == (2, [])
    assert [len(answer) for _, answer in texts(loaded)] == [LONG, 1]


def test_c45_a_line_above_the_limit_is_an_error_with_line_and_size(read):
    row = b'{"instruction":"a","output":"' + b"x" * MAX_LINE_BYTES + b'"}\n'
    assert told(read(GOOD + row + GOOD)) == [
        "d:2: line of 16,777,248 bytes, the limit is 16,777,216 bytes (16 MiB) [line-too-long]"
    ]
    [finding] = read(b"[" + GOOD + b"," + row + b"]", file_format="json").findings
    assert (finding.rule, finding.line, finding.field) == ("line-too-long", 2, "[1]")
    [finding] = read(b"instruction,output\na," + row, file_format="csv").findings
    assert (finding.rule, finding.line) == ("line-too-long", 2)


def rows_file(path: Path, file_format: str, count: int) -> None:
    """`count` rows of 64 KiB in one format."""
    rows = [
        {"instruction": f"{i}", "output": f"{i}" * (65536 // len(f"{i}"))} for i in range(count)
    ]
    if file_format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=64)
    elif file_format == "csv":
        lines = [f"{row['instruction']},{row['output']}\n" for row in rows]
        path.write_text("instruction,output\n" + "".join(lines))
    elif file_format == "json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def peak(path: Path, file_format: str) -> int:
    """Bytes that Python and Arrow hold at most while the rows are read one by one."""
    tracemalloc.start()
    arrow = 0
    for _ in read_rows(path, file_format, Log("d"), needed=()):
        arrow = max(arrow, pa.total_allocated_bytes())
    _, python = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return python + arrow


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "parquet"])
def test_c45_memory_does_not_grow_with_the_number_of_rows(tmp_path, file_format):
    peaks = []
    for count in (100, 1000):
        rows_file(tmp_path / f"{count}", file_format, count)
        peaks.append(peak(tmp_path / f"{count}", file_format))
    assert peaks[1] <= 1.1 * peaks[0] + 65536, peaks
