"""Writers: canonical, atomic, and nothing half-written."""

import itertools

import pyarrow as pa
import pytest

from hashtune import writers


def test_canonical_json_is_sorted_raw_unicode_and_refuses_nan():
    assert writers.canonical_json({"b": "é", "a": [1]}, indent=None) == '{"a":[1],"b":"é"}\n'
    with pytest.raises(ValueError):
        writers.canonical_json(float("nan"))


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    writers.write_text(path, "old")

    def full(_descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("hashtune.writers.os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        writers.write_text(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    target = tmp_path / "out"
    with writers.staged_directory(target) as folder:
        (folder / "f").write_text("old")
    with pytest.raises(RuntimeError), writers.staged_directory(target) as folder:
        (folder / "f").write_text("new")
        raise RuntimeError
    assert (target / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_json_lines_keep_line_separators_inside_texts(tmp_path):
    rows = [{"text": "a\u2028b\u0085c\r"}, {"text": ""}]
    writers.write_jsonl(tmp_path / "x.jsonl", rows)
    writers.stream_jsonl(tmp_path / "streamed", iter(rows))
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "x.jsonl").read_bytes()
    assert writers.read_jsonl(tmp_path / "x.jsonl") == rows


def test_equal_rows_are_equal_parquet_bytes(tmp_path):
    schema = pa.schema([("id", pa.string()), ("ids", pa.list_(pa.int32()))])
    rows = [{"id": "a", "ids": [1, 2]}, {"id": "b", "ids": []}]
    for name in ("one", "two"):
        writers.write_parquet(tmp_path / name, rows, schema)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert writers.read_parquet(tmp_path / "one") == rows


def test_sha256_of_a_known_text(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert writers.sha256_file(tmp_path / "abc") == writers.sha256_bytes(b"abc") == known


@pytest.mark.parametrize("cuts", [[0, 7, 7, 8, 20], [0, 20], [0, 1, 13, 20]])
def test_streamed_parquet_bytes_do_not_depend_on_the_cuts(tmp_path, monkeypatch, cuts):
    schema = pa.schema([("id", pa.string()), ("ids", pa.list_(pa.int32()))])
    rows = [{"id": f"é{n}", "ids": list(range(n))} for n in range(20)]
    parts = [pa.Table.from_pylist(rows[a:b], schema=schema) for a, b in itertools.pairwise(cuts)]
    whole = pa.Table.from_pylist(rows, schema=schema)
    writers.write_parquet(tmp_path / "whole", rows, schema)
    writers.stream_parquet(tmp_path / "streamed", parts, schema)
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "whole").read_bytes()
    monkeypatch.setattr(writers, "STREAM_ROWS", 6)
    writers.stream_parquet(tmp_path / "one", [whole], schema)
    writers.stream_parquet(tmp_path / "many", parts, schema)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()
    assert writers.read_parquet(tmp_path / "many") == rows
    assert writers.parquet_rows(tmp_path / "many") == 20
    chunks = list(writers.parquet_chunks(tmp_path / "many", 4))
    assert [len(chunk) for chunk in chunks] == [4] * 5
    assert [row for chunk in chunks for row in chunk] == rows


def test_a_streamed_file_of_no_rows(tmp_path):
    schema = pa.schema([("id", pa.string())])
    writers.write_parquet(tmp_path / "whole", [], schema)
    writers.stream_parquet(tmp_path / "streamed", [], schema)
    assert (tmp_path / "streamed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert list(writers.parquet_chunks(tmp_path / "streamed", 4)) == []
