"""Section 4 of the list of cases through the stages: bytes of files go in, and what is asserted is
what prepare writes or refuses, and where a value must survive, what tokenize trains
(tests/data/test_cases.py: the same values of one file, without the stages)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import writers
from hashtune.data.lines import MAX_LINE_BYTES
from hashtune.errors import InputError
from hashtune.spec.load import read_params
from hashtune.stages import prepare, tokenize
from hashtune.store.loader import load_tokenizer, resolve
from hashtune.store.manifest import Source, manifest_json, read_manifest
from hashtune.store.synthetic import CHAT_TEMPLATE

REPOSITORY = Path(__file__).parents[2]
BOM = b"\xef\xbb\xbf"
GOOD = b'{"instruction":"a","output":"x"}\n'
MEGABYTES = 12_000_000


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HASHTUNE_PROCESSES", "1")
    monkeypatch.chdir(tmp_path)


def pair(instruction: str, output: object = "x", **more: object) -> bytes:
    row = {"instruction": instruction, "output": output, **more}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def parquet(columns: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def write(path: str, data: bytes, file_format: str = "jsonl", schema: str = "instruction") -> Any:
    writers.write_bytes(Path(path), data)
    pin = writers.sha256_bytes(data)
    return {"uri": path, "sha256": pin, "format": file_format, "schema": schema, "fields": {}}


def spec(files: dict[str, bytes], *, schema: str = "instruction", **cleaning: Any) -> None:
    """params.yaml with a source for each file, whose format is the end of its name."""
    params = read_params(REPOSITORY / "params.yaml")
    params["data"] |= {"max_rows": None, "max_seq_len": 64, "over_length": "drop"}
    params["data"]["sources"] = [
        {
            **write(f"data/{name}", data, name.rpartition(".")[2], schema),
            **{"name": name.replace(".", "_"), "weight": 1.0, "max_rows": None},
        }
        for name, data in files.items()
    ]
    params["data"]["replay"] |= {"uri": None, "sha256": None, "share": 0.0}
    params["data"]["eval"] |= write("data/eval.jsonl", pair("e", "e"))
    params["data"]["test"] |= write("data/test.jsonl", pair("t", "t"))
    params["cleaning"] |= {"deduplicate": "none", **cleaning}
    params["regression"]["suites"] = []
    writers.write_text(Path("own.jinja"), CHAT_TEMPLATE)
    pin = writers.sha256_bytes(CHAT_TEMPLATE.encode())
    params["tokenizer"] |= {"chat_template": "own.jinja", "sha256": pin}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


def told(files: dict[str, bytes], **settings: Any) -> list[str]:
    """What prepare refuses the files for; nothing is written."""
    spec(files, **settings)
    with pytest.raises(InputError) as caught:
        prepare.run()
    assert not Path("build/prepare").exists()
    assert not Path("reports").exists()
    return [str(finding).split("\n")[0] for finding in caught.value.findings]


def texts(files: dict[str, bytes], **settings: Any) -> dict[tuple[str, int], tuple[str, str]]:
    """What prepare makes of each row, by source and line: the question and the answer."""
    spec(files, **settings)
    prepare.run()
    found = {}
    for row in writers.read_parquet(Path("build/prepare/train.parquet")):
        *_, question, answer = json.loads(row["messages"])
        found[row["source"], row["line"]] = (question["content"], answer["content"])
    return found


def figures(source: str) -> Any:
    return writers.read_json(Path("reports/prepare.json"))["sources"][source]


def trained() -> list[str]:
    """The trained texts after tokenize, without the end marker."""
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    manifest = resolve(source, name="tiny", say=lambda text: None)
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
    tokenize.run()
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    rows = writers.read_parquet(Path("build/tokenize/train.parquet"))
    answers = [tokenizer.decode([n for n in row["labels"] if n != -100]) for row in rows]
    assert all(answer.endswith("<|im_end|>") for answer in answers)
    return sorted(answer.removesuffix("<|im_end|>") for answer in answers)


def test_c34_byte_order_marks() -> None:
    table = b"instruction,output\r\na,x\r\nb,y\r\n"
    found = texts({"a.jsonl": BOM + GOOD * 2, "b.csv": BOM + table})
    assert found == {
        ("a_jsonl", 1): ("a", "x"),
        ("a_jsonl", 2): ("a", "x"),
        ("b_csv", 2): ("a", "x"),
        ("b_csv", 3): ("b", "y"),
    }
    for source in ("a_jsonl", "b_csv"):
        assert figures(source)["notes"] == ["byte order mark at the start removed"]
        assert figures(source)["extra_fields"] == {}


def test_c34_c36_c38_c39_c43_c45_all_that_is_broken_is_told_in_one_run() -> None:
    share = b'{"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}\n'
    found = told(
        {
            "bom.jsonl": GOOD * 2 + BOM + GOOD,
            "cp1252.jsonl": GOOD + b'{"instruction":"caf\xe9","output":"x"}\n',
            "utf16.jsonl": GOOD.decode().encode("utf-16"),
            "mixed.jsonl": GOOD + share,
            "types.jsonl": GOOD + b'{"instruction":"a","output":7}\n',
            "comma.jsonl": b'{"instruction":"a","output":"x",}\n' + GOOD,
            "nan.jsonl": b'{"instruction":"a","output":NaN}\n' + GOOD,
            "half.jsonl": b'{"instruction":"a","output":"\\ud83d"}\n' + GOOD,
            "single.jsonl": b"{'instruction':'a','output':'x'}\n" + GOOD,
            "array.jsonl": b"[" + GOOD.strip() + b"]",
            "cut.jsonl": GOOD + b'{"instruction":"c","outp',
            "long.jsonl": GOOD + b'{"instruction":"' + b"x" * MAX_LINE_BYTES + b'"}\n',
        }
    )
    assert found == [
        "data/bom.jsonl:3: byte order mark at byte 66, not at the start of the file "
        "[bom-in-middle]",
        "data/cp1252.jsonl:2: byte 0xE9 at byte 52 of the file is not UTF-8 (cp1252?) [not-utf8]",
        "data/utf16.jsonl:1: is UTF-16 (little-endian byte order mark FF FE), expected UTF-8 text "
        "with one JSON object per line [not-jsonl]",
        "data/mixed.jsonl:2: schema sharegpt, file is declared as instruction [mixed-schema]",
        "data/types.jsonl:2: output: expected string, got number [wrong-type]",
        "data/comma.jsonl:1: column 33: trailing comma [json]",
        "data/nan.jsonl:1: column 29: NaN is no JSON value [not-a-number]",
        "data/half.jsonl:1: column 29: lone surrogate U+D83D, half of a character [lone-surrogate]",
        "data/single.jsonl:1: column 2: single quote; JSON strings stand in double quotes [json]",
        "data/array.jsonl:1: file is a JSON array, expected one object per line [array]",
        "data/cut.jsonl:2: the last line is cut off (column 20: unterminated string starting at) "
        "[cut-off-line]",
        "data/long.jsonl:2: line of 16,777,235 bytes, the limit is 16,777,216 bytes (16 MiB) "
        "[line-too-long]",
    ]


def test_c36_the_locale_changes_no_byte(tmp_path: Path) -> None:
    spec({"a.jsonl": pair("café", "naïve ☃"), "b.csv": "instruction,output\né,☃\n".encode()})
    outputs = []
    for more in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}):
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **more}
        command = [sys.executable, "-c", "from hashtune.stages import prepare; prepare.run()"]
        done = subprocess.run(command, env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        outputs.append([file.read_bytes() for file in sorted(Path("build/prepare").iterdir())])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 4


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
def test_c37_line_separators_of_unicode_reach_the_tokens(mark: str) -> None:
    text = f"a{mark}b"
    found = texts(
        {
            "a.jsonl": pair("q", text),
            "b.json": b"[" + pair("q", text) + b"]",
            "c.csv": f"instruction,output\nq,{text}\n".encode(),
            "d.tsv": f"instruction\toutput\nq\t{text}\n".encode(),
            "e.parquet": parquet({"instruction": ["q"], "output": [text]}),
        }
    )
    assert [len(answer) for _, answer in found.values()] == [3] * 5
    assert set(found.values()) == {("q", text)}
    assert trained() == [text] * 5
    ledger = Path("build/prepare/ledger.jsonl").read_bytes()
    assert ledger.count(b"\n") == len(writers.read_jsonl(Path("build/prepare/ledger.jsonl"))) == 0


def test_c39_a_type_that_changes_late_in_an_extra_field() -> None:
    rows = b"".join(pair(f"q {n}", meta=None) for n in range(300)) + pair("q", meta={"src": "x"})
    found = texts({"a.jsonl": rows})
    assert len(found) == 301
    assert figures("a_jsonl")["extra_fields"] == {"meta": 301}


VALUES = ["2024-01-05", "2024-02-06", "00501", "True", "1e5", "null", "NaN", "1,5"]


def test_c40_values_stay_as_written_to_the_tokens() -> None:
    rows = [{"instruction": "q", "output": value} for value in VALUES]
    found = texts(
        {
            "a.jsonl": b"".join(pair("q", value) for value in VALUES),
            "b.json": json.dumps(rows, indent=0).encode(),
            "c.csv": ("instruction,output\n" + "".join(f'q,"{v}"\n' for v in VALUES)).encode(),
            "d.tsv": ("instruction\toutput\n" + "".join(f"q\t{v}\n" for v in VALUES)).encode(),
            "e.parquet": parquet({"instruction": ["q"] * 8, "output": VALUES}),
        }
    )
    assert sorted(answer for _, answer in found.values()) == sorted(VALUES * 5)
    assert trained() == sorted(VALUES * 5)


C41 = GOOD + pair("a", None) + b'{"instruction":"a"}\n' + pair("a", "  ")


def test_c41_null_missing_and_blank() -> None:
    assert told({"a.jsonl": C41}) == [
        "data/a.jsonl:2: output: null, expected string [null]",
        "data/a.jsonl:3: output: missing [missing]",
        "data/a.jsonl:4: output: blank [blank]",
    ]
    first, *_ = told({"a.jsonl": C41}, on_bad_row="drop", max_drop_share=0.01)
    assert first == (
        "data/a.jsonl: cleaning.max_drop_share: kept 1, dropped 3 (blank 1, missing 1, null 1): "
        "share 0.75 is above 0.01 [drop-share]"
    )
    nothing, *_ = told({"a.jsonl": C41.removeprefix(GOOD)}, on_bad_row="drop", max_drop_share=1.0)
    assert nothing.endswith("0 rows remain [no-rows]")
    assert texts({"a.jsonl": C41}, on_bad_row="drop", max_drop_share=0.75) == {
        ("a_jsonl", 1): ("a", "x")
    }
    report = figures("a_jsonl")
    assert (report["rows"], report["kept"]["train"]) == (4, 1)
    assert report["dropped"] == {"blank": 1, "missing": 1, "null": 1}
    ledger = writers.read_jsonl(Path("build/prepare/ledger.jsonl"))
    assert [(row["line"], row["reason"]) for row in ledger] == [
        (2, "null"),
        (3, "missing"),
        (4, "blank"),
    ]


def test_c43_a_declared_array_is_read() -> None:
    found = texts({"a.json": b"[" + GOOD.strip() + b",\n" + pair("b", "y") + b"]"})
    assert sorted(found.values()) == [("a", "x"), ("b", "y")]


def test_c45_a_row_of_12_megabytes_is_a_row_and_a_long_one_over_long() -> None:
    """The tokens of 12 MB take 10 s, so tokenize gets a row of a tenth of that."""
    long = pair("long", " assistant" * (MEGABYTES // 10))
    found = texts({"a.jsonl": long + GOOD})
    assert sorted(len(answer) for _, answer in found.values()) == [1, MEGABYTES]
    texts({"a.jsonl": pair("long", " assistant" * (MEGABYTES // 100)) + GOOD})
    assert trained() == ["x"]
    report = writers.read_json(Path("reports/tokenize.json"))["train"]
    assert (report["rows_in"], report["kept"], report["dropped"]) == (2, 1, {"over_length": 1})
    assert report["tokens_lost"] > MEGABYTES // 100
    (line,) = writers.read_jsonl(Path("build/tokenize/ledger.jsonl"))
    assert (line["source"], line["line"], line["reason"]) == ("a_jsonl", 1, "over_length")
