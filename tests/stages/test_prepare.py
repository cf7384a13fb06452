"""The stage on files: what it writes, what it refuses, and that it writes the same bytes."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hashtune import writers
from hashtune.errors import InputError
from hashtune.spec.schema import Filters
from hashtune.stages import prepare
from hashtune.store import remote

SRC = Path(__file__).resolve().parents[2] / "src"


def talk(user, answer="a", **other):
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **other}


def write(path: str, rows) -> str:
    """Write a JSONL file; give its sha256."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    writers.write_text(Path(path), text)
    return hashlib.sha256(text.encode()).hexdigest()


def held_out(uri, sha256, fraction=0.0):
    return {
        "uri": uri,
        "sha256": sha256,
        "format": "jsonl",
        "schema": "messages",
        "fields": {},
        "fraction": fraction,
        "max_rows": None,
    }


@pytest.fixture
def params(tmp_path, monkeypatch):
    """A project folder with two sources, eval, test, replay answers and a suite."""
    monkeypatch.chdir(tmp_path)
    a = write("data/a.jsonl", [talk("a\u2028 1"), talk("a 2", meta=1), talk("A  2"), talk("a 3")])
    b = write("data/b.jsonl", [{"instruction": "b 1", "input": "x", "output": "2024-01-05"}])
    write("build/replay/answers.jsonl", [{"id": f"r{i}", **talk(f"r {i}")} for i in range(5)])
    source = {"format": "jsonl", "fields": {}, "weight": 1.0, "max_rows": None}
    return {
        "data": {
            "name": "toy",
            "sources": [
                {"name": "a", "uri": "data/a.jsonl", "sha256": a, "schema": "messages", **source},
                {
                    "name": "b",
                    "uri": "data/b.jsonl",
                    "sha256": b,
                    "schema": "instruction",
                    **source,
                },
            ],
            "replay": {
                "uri": "data/prompts.jsonl",
                "sha256": "0" * 64,
                "share": 0.2,
                "max_prompts": None,
                "max_new_tokens": 1,
                "batch_size": 1,
            },
            "eval": held_out("data/eval.jsonl", write("data/eval.jsonl", [talk("e 1")])),
            "test": held_out(
                "data/test.jsonl", write("data/test.jsonl", [talk("t 1"), talk("t 2")])
            ),
            "max_rows": None,
            "max_seq_len": 64,
            "packing": True,
            "loss_on": "assistant",
            "over_length": "drop",
            "task": {"metric": "exact_match", "fields": []}
            | dict.fromkeys(("user_metric", "json_schema", "base_instruction")),
        },
        "cleaning": {
            "on_bad_row": "error",
            "max_drop_share": 0.0,
            "normalise": {"newlines": "none", "unicode": "none", "whitespace": "none"},
            "filters": dict.fromkeys(Filters.model_fields),
            "patterns": [],
            "deduplicate": "exact",
            "near_duplicates": {"threshold": None, "shingle": 3},
            "balance": {"by": None, "max_rows": None},
            "leakage_ngram": 4,
            "leakage_near": {"threshold": None, "shingle": 3},
            "leakage_groups": "error",
            "leakage_action": "error",
            "leakage_max_share": 0.0,
        },
        "regression": {
            "suites": [
                {
                    "name": "s",
                    "uri": "data/s.jsonl",
                    "sha256": write("data/s.jsonl", [{"prompt": "q"}]),
                }
            ],
            "max_new_tokens": 1,
            "max_items": None,
        },
    }


def run(params) -> None:
    writers.write_json(Path("params.yaml"), params)
    prepare.run()


def refused(params) -> list[str]:
    with pytest.raises(InputError) as error:
        run(params)
    assert not Path("build/prepare").exists()
    assert not Path("reports").exists()
    return [str(finding).splitlines()[0] for finding in error.value.findings]


def outputs() -> dict[str, bytes]:
    files = [*Path("build/prepare").iterdir(), Path("reports/prepare.json")]
    return {file.as_posix(): file.read_bytes() for file in files}


def test_writes_splits_ledger_and_report(params, capsys):
    run(params)
    train = writers.read_parquet(Path("build/prepare/train.parquet"))
    assert sorted((row["source"], row["line"]) for row in train if row["source"] != "replay") == [
        ("a", 1),
        ("a", 2),
        ("a", 4),
        ("b", 1),
    ]
    assert sum(row["source"] == "replay" for row in train) == 1  # round(4 * 0.2 / 0.8)
    [first] = [row for row in train if (row["source"], row["line"]) == ("a", 1)]
    text = '[{"role":"user","content":"a\u2028 1"},{"role":"assistant","content":"a"}]'
    assert first["messages"] == text
    canonical = '[{"content":"a\u2028 1","role":"user"},{"content":"a","role":"assistant"}]\n'
    assert first["id"] == hashlib.sha256(canonical.encode()).hexdigest()[:16]
    [dated] = [row for row in train if row["source"] == "b"]
    assert json.loads(dated["messages"]) == talk("b 1\n\nx", "2024-01-05")["messages"]
    assert len(writers.read_parquet(Path("build/prepare/eval.parquet"))) == 1
    assert len(writers.read_parquet(Path("build/prepare/test.parquet"))) == 2

    ledger = writers.read_jsonl(Path("build/prepare/ledger.jsonl"))
    assert [(row["source"], row["reason"]) for row in ledger] == [
        ("a", "duplicate"),
        *[("replay", "replay_share")] * 4,
    ]
    assert set(ledger[0]) == {"id", "source", "line", "reason", "detail"}
    report = writers.read_json(Path("reports/prepare.json"))
    assert report["splits"] == {"train": 5, "eval": 1, "test": 2}
    assert report["replay"] == {"rows": 1, "share": 0.2, "share_asked": 0.2}
    assert report["sources"]["a"]["extra_fields"] == {"meta": 1}
    assert {name: leak["items"] for name, leak in report["leakage"].items()} == {
        "eval": 1,
        "test": 2,
        "suite_s": 1,
    }
    assert "train conversations  5" in capsys.readouterr().out


def test_same_inputs_same_bytes_in_any_folder(params, tmp_path, monkeypatch):
    run(params)
    first = outputs()
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("data", "build/replay"):
        (other / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).rename(other / name)
    monkeypatch.chdir(other)
    run(params)
    assert outputs() == first


def test_training_order_does_not_follow_the_file(params):
    def ids():
        run(params)
        return [row["id"] for row in writers.read_parquet(Path("build/prepare/train.parquet"))]

    params["cleaning"]["deduplicate"] = "none"
    first = ids()
    lines = Path("data/a.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    rows = [json.loads(line) for line in reversed(lines)]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    assert ids() == first


def test_held_out_rows_are_split_off_when_they_have_no_file(params):
    rows = [talk(f"row {i}") for i in range(100)]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    params["data"]["eval"] = held_out(None, None, 0.2)
    params["data"]["test"] = held_out(None, None, 0.3)
    params["data"]["replay"]["uri"] = None
    run(params)
    report = writers.read_json(Path("reports/prepare.json"))
    assert sum(report["splits"].values()) == 101
    assert 10 <= report["splits"]["eval"] <= 30
    assert 18 <= report["splits"]["test"] <= 42
    assert report["replay"]["rows"] == 0


def test_all_findings_of_all_files_come_at_once(params):
    data = params["data"]
    data["sources"][0]["sha256"] = write("data/a.jsonl", [talk("a"), talk("a", None), {"x": 1}])
    data["sources"][1]["sha256"] = "0" * 64
    data["eval"]["uri"] = "../eval.jsonl"
    Path("build/replay/answers.jsonl").unlink()
    params["regression"]["suites"][0]["sha256"] = write("data/s.jsonl", [{"text": "q"}])
    found = refused(params)
    assert found[0] == "data/a.jsonl:2: messages[1].content: null and no tool_calls [null]"
    assert found[1] == "data/a.jsonl:3: messages: missing [missing]"
    assert found[2].startswith("data/b.jsonl: data.sources[1].sha256: sha256 is ")
    assert found[3] == ("data.replay.uri: 'build/replay/answers.jsonl' does not exist [no-file]")
    assert found[4].startswith("data.eval.uri: '../eval.jsonl' is not relative")
    assert found[5] == "data/s.jsonl:1: prompt or question: missing [missing]"
    assert len(found) == 6


def test_unpinned_eval_is_refused(params):
    params["data"]["eval"]["sha256"] = None
    [found] = refused(params)
    assert found == "data/eval.jsonl: data.eval.sha256: has no sha256 [unpinned]"


@pytest.mark.parametrize("name", ["b", "eval", "test", "replay"])
def test_a_taken_source_name_is_refused(params, name):
    params["data"]["sources"][0]["name"] = name
    assert any("is taken [name-taken]" in found for found in refused(params))


def test_planted_leak_is_refused(params):
    rows = [talk("t 1"), talk("a 3 ")]
    params["data"]["test"]["sha256"] = write("data/test.jsonl", rows)
    assert refused(params) == [
        "cleaning.leakage_max_share: 1 of 2 items of test are in train (share 0.5, 1 exact, "
        "0 by 4 words), the limit is 0 [leakage]",
        "data/test.jsonl:2: test item equals data/a.jsonl:4: 'a 3' [leaked-item]",
    ]


def test_bad_rows_are_dropped_up_to_the_limit(params):
    rows = [talk("a 1"), talk("a 2", " "), talk("a 3"), talk("a 4")]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    params["cleaning"] |= {"on_bad_row": "drop", "max_drop_share": 0.2}
    [summary, _] = refused(params)
    assert "kept 3, dropped 1 (blank 1): share 0.25 is above 0.2" in summary
    params["cleaning"]["max_drop_share"] = 0.25
    run(params)
    figures = writers.read_json(Path("reports/prepare.json"))["sources"]["a"]
    assert (figures["rows"], figures["kept"]["train"], figures["dropped"]) == (4, 3, {"blank": 1})


def test_too_few_replay_answers_are_refused(params):
    params["data"]["replay"]["share"] = 0.75
    [found] = refused(params)
    assert "0.75 of the mix is 12 replay rows for 4 task rows, but there are 5 answers" in found


def test_a_source_that_adds_nothing_is_refused(params):
    """Planted: one file under two names; every row of the second was a duplicate, and the mixture
    was that of one source."""
    params["data"]["sources"][1] = {**params["data"]["sources"][0], "name": "b"}
    assert refused(params) == ["data.sources: no row of b is left (duplicate 4) [no-rows]"]
    params["cleaning"]["deduplicate"] = "none"
    run(params)
    train = writers.read_parquet(Path("build/prepare/train.parquet"))
    ids = [row["id"] for row in train if row["source"] != "replay"]
    assert len(ids) == len(set(ids)) == 8
    assert sum(name.endswith("#2") for name in ids) == 4
    rows = writers.read_json(Path("reports/prepare.json"))["rows"]
    assert rows["in"] == rows["kept"] + sum(rows["dropped"].values()) == 16


@pytest.mark.parametrize("weight", [0, -1.0, 1000.1, 1e300, "1", True])
def test_a_weight_that_is_none_is_refused(params, weight):
    """Planted: 1e300 copies were a fault of ours."""
    params["data"]["sources"][0]["weight"] = weight
    [finding] = refused(params)
    assert "data.sources[0].weight: " in finding


@pytest.mark.parametrize(
    ("weight", "cap", "rows", "repeated"),
    [(1.0, 10**30, 3, 0), (2.5, None, 8, 5), (3.0, 5, 5, 2), (1000.0, 4, 4, 1), (0.5, 1, 1, 0)],
)
def test_weight_and_cap_count_every_row(params, weight, cap, rows, repeated):
    """a holds three rows and a duplicate; copies are counted apart from rows that are kept."""
    params["data"]["replay"]["share"] = 0.0
    params["data"]["sources"][0] |= {"weight": weight, "max_rows": cap}
    run(params)
    report = writers.read_json(Path("reports/prepare.json"))
    of_a = report["sources"]["a"]
    assert report["splits"]["train"] == rows + 1
    assert of_a["repeated"] == repeated
    assert of_a["kept"]["train"] == rows - repeated
    assert of_a["rows"] == 4 == of_a["kept"]["train"] + sum(of_a["dropped"].values())


@pytest.mark.parametrize(
    ("limit", "said"),
    [(0.3, None), (0.2999, "0.3 is above 0.2999"), (0.29999999, "0.3 is above 0.29999999")],
)
def test_a_share_at_the_limit_is_within_it(params, limit, said):
    rows = [*(talk(f"x {i}") for i in range(7)), *[{"messages": []}] * 3]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    params["cleaning"] |= {"on_bad_row": "drop", "max_drop_share": limit}
    if said is None:
        run(params)
        rows = writers.read_json(Path("reports/prepare.json"))["sources"]["a"]
        assert (rows["kept"]["train"], rows["dropped"]) == (7, {"empty": 3})
    else:
        assert f"kept 7, dropped 3 (empty 3): share {said} [drop-share]" in refused(params)[0]


def test_data_max_rows_caps_every_source(params):
    params["data"]["max_rows"] = 2
    params["data"]["replay"]["share"] = 0.0
    run(params)
    report = writers.read_json(Path("reports/prepare.json"))
    assert {name: of["kept"]["train"] for name, of in report["sources"].items()} == {
        "a": 2,
        "b": 1,
        "eval": 0,
        "test": 0,
    }
    assert [prepare.smaller(1, 2), prepare.smaller(None, 2), prepare.smaller(None, None)] == [
        1,
        2,
        None,
    ]


def test_every_format_gives_the_same_conversations(params):
    """One source in five formats: the same bytes, but for the line each row stands in."""
    source = params["data"]["sources"][1]
    rows = [{"instruction": "b\n1", "output": "00501"}, {"instruction": "b 2", "output": "True"}]

    def train(file_format: str, text: str | bytes) -> list[tuple[str, str, str]]:
        writers.write_bytes(Path(source["uri"]), text.encode() if isinstance(text, str) else text)
        pin = writers.sha256_file(Path(source["uri"]))
        source.update({"format": file_format, "sha256": pin})
        run(params)
        kept = writers.read_parquet(Path("build/prepare/train.parquet"))
        return [(row["id"], row["source"], row["messages"]) for row in kept]

    expected = train("jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert train("json", json.dumps(rows)) == expected
    assert train("csv", 'instruction,output\n"b\n1",00501\nb 2,True\n') == expected
    assert train("tsv", 'instruction\toutput\n"b\n1"\t00501\nb 2\tTrue\n') == expected
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    assert train("parquet", sink.getvalue().to_pybytes()) == expected
    source.update({"format": "csv", "fields": {"instruction": "text", "output": "category"}})
    assert train("csv", 'text,category\n"b\n1",00501\nb 2,True\n') == expected


def test_plain_text_in_every_format_is_one_message_of_its_own_role(params):
    """The first column is the text, the second no field of the schema."""
    source = params["data"]["sources"][1]
    source.update({"schema": "text", "fields": {"text": "body"}})
    rows = [{"body": "b\n1", "lang": "00501"}, {"body": "2024-01-05", "lang": "True"}]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    written = {
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "json": json.dumps(rows).encode(),
        "csv": b'body,lang\n"b\n1",00501\n2024-01-05,True\n',
        "tsv": b'body\tlang\n"b\n1"\t00501\n2024-01-05\tTrue\n',
        "parquet": sink.getvalue().to_pybytes(),
    }
    for file_format, content in written.items():
        writers.write_bytes(Path(source["uri"]), content)
        pin = writers.sha256_file(Path(source["uri"]))
        source.update({"format": file_format, "sha256": pin})
        run(params)
        kept = writers.read_parquet(Path("build/prepare/train.parquet"))
        assert sorted(row["messages"] for row in kept if row["source"] == "b") == [
            '[{"role":"text","content":"2024-01-05"}]',
            '[{"role":"text","content":"b\\n1"}]',
        ]
        report = writers.read_json(Path("reports/prepare.json"))
        assert report["sources"]["b"]["extra_fields"] == {"lang": 2}


def texts(params, *rows, **other) -> None:
    """Make source b plain text of these rows."""
    source = params["data"]["sources"][1]
    pin = write(source["uri"], [{"text": row} if isinstance(row, str) else row for row in rows])
    source.update({"schema": "text", "sha256": pin, **other})


def test_broken_plain_text_is_found_by_rule(params):
    texts(params, {"txt": "b"}, {"text": None}, {"text": 5}, " ", {"messages": []}, "b")
    assert refused(params) == [
        "data/b.jsonl:1: text: missing [missing]",
        "data/b.jsonl:2: text: null, expected string [null]",
        "data/b.jsonl:3: text: expected string, got number [wrong-type]",
        "data/b.jsonl:4: text: blank [blank]",
        "data/b.jsonl:5: schema messages, file is declared as text [mixed-schema]",
    ]


def test_plain_text_is_cleaned_split_and_mixed_like_conversations(params):
    """Of 9 texts: a repeat, one with an address, one of digits and one nearly equal go; of the
    five that stay half are taken, one of them twice over the cap."""
    rows = ["b one two three four five", "B  one two three four FIVE", "b one two three four six"]
    rows += ["mail nora@x", "1234567", "b c", "b d", "b e", "b f\r\n"]
    texts(params, *rows, weight=0.5)
    sha256 = write("data/list.jsonl", [{"name": "mail", "pattern": r"\w+@\w+"}])
    params["cleaning"] |= {
        "normalise": {"newlines": "lf", "unicode": "none", "whitespace": "trim"},
        "filters": {**params["cleaning"]["filters"], "min_letter_share": 0.5},
        "patterns": [{"name": "pii", "uri": "data/list.jsonl", "sha256": sha256, "action": "drop"}],
        "near_duplicates": {"threshold": 0.7, "shingle": 1},
    }
    run(params)
    ledger = writers.read_jsonl(Path("build/prepare/ledger.jsonl"))
    reasons = sorted((row["line"], row["reason"]) for row in ledger if row["source"] == "b")
    assert [reason for reason in reasons if reason[1] != "weight"] == [
        (2, "duplicate"),
        (3, "near_duplicate"),
        (4, "pattern"),
        (5, "min_letter_share"),
    ]
    assert [reason for _, reason in reasons].count("weight") == 2  # 5 * 0.5, half up
    figures = writers.read_json(Path("reports/prepare.json"))
    assert figures["sources"]["b"]["kept"] == {"train": 3, "eval": 0, "test": 0}
    assert figures["cleaning"]["normalised"]["b"] == {"newlines": 1, "whitespace": 1}


def test_plain_text_is_split_off_for_eval_by_its_hash(params):
    texts(params, *[f"text {n}" for n in range(100)])
    params["data"]["eval"] = held_out(None, None, 0.2)
    params["data"]["replay"]["share"] = 0.0
    run(params)
    kept = writers.read_json(Path("reports/prepare.json"))["sources"]["b"]["kept"]
    assert kept["train"] + kept["eval"] == 100 and 10 <= kept["eval"] <= 30
    before = {row["id"] for row in writers.read_parquet(Path("build/prepare/eval.parquet"))}
    texts(params, *[f"text {n}" for n in range(120)])
    run(params)
    assert before <= {row["id"] for row in writers.read_parquet(Path("build/prepare/eval.parquet"))}


def test_a_plain_text_that_holds_a_question_is_a_leak(params):
    texts(params, "first q 1 2 3 4 last", "e 1")
    params["data"]["test"]["sha256"] = write("data/test.jsonl", [talk("q 1 2 3")])
    params["regression"]["suites"][0]["sha256"] = write("data/s.jsonl", [{"prompt": "1 2 3 4"}])
    assert refused(params)[1::2] == [
        "data/eval.jsonl:1: eval item equals data/b.jsonl:2: 'e 1' [leaked-item]",
        "data/test.jsonl:1: test item shares words with data/b.jsonl:1: 'q 1 2 3' [leaked-item]",
        "data/s.jsonl:1: suite_s item shares words with data/b.jsonl:1: '1 2 3 4' [leaked-item]",
    ]


@pytest.mark.parametrize("file_format", ["jsonl", "json", "parquet"])
def test_masks_tool_calls_and_reasoning_reach_the_next_stage(params, file_format):
    call = {"function": {"name": "f", "arguments": '{"x": "00501"}'}, "id": "1"}
    messages = [
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": None, "tool_calls": [call], "train": False},
        {"role": "tool", "content": "2024-01-05", "tool_call_id": "1"},
        {"role": "assistant", "content": "a", "reasoning_content": "since", "weight": 1},
    ]
    source = params["data"]["sources"][1]
    if file_format == "parquet":
        pq.write_table(pa.Table.from_pylist([{"messages": messages}]), source["uri"])
    else:
        rows = {"messages": messages} if file_format == "jsonl" else [{"messages": messages}]
        writers.write_text(Path(source["uri"]), json.dumps(rows) + "\n")
    pin = writers.sha256_file(Path(source["uri"]))
    source.update({"format": file_format, "schema": "messages", "sha256": pin})
    run(params)
    kept = writers.read_parquet(Path("build/prepare/train.parquet"))
    assert [json.loads(row["messages"]) for row in kept if row["source"] == "b"] == [messages]


def test_a_remote_source_is_fetched_by_its_pin(params, monkeypatch):
    """Only the transport is replaced: the store, the pin and the reading are real."""
    run(params)
    first = outputs()["build/prepare/train.parquet"]
    source = params["data"]["sources"][0]
    where = Path(source["uri"]).rename("elsewhere.jsonl")
    source["uri"] = "https://example.com/a.jsonl"

    def download(url, target, say):
        assert url == "https://example.com/a.jsonl"
        target.write_bytes(where.read_bytes())

    monkeypatch.setattr(remote, "_download", download)
    run(params)
    assert outputs()["build/prepare/train.parquet"] == first
    report = writers.read_json(Path("reports/prepare.json"))
    assert report["sources"]["a"]["file"] == "https://example.com/a.jsonl"


def test_a_remote_source_of_another_content_is_refused(params, monkeypatch):
    source = params["data"]["sources"][0]
    source.update({"uri": "https://example.com/a.jsonl", "sha256": "0" * 64})

    def download(_, target, say):
        target.write_text("x\n")

    monkeypatch.setattr(remote, "_download", download)
    found = hashlib.sha256(b"x\n").hexdigest()
    assert refused(params) == [
        f"https://example.com/a.jsonl: data.sources[0].sha256: sha256 is {found}, "
        f"pinned is {'0' * 64} [pin]"
    ]


def test_a_policy_by_rule_reaches_the_ledger(params):
    rows = [talk("a 1"), talk("a 2", " "), talk("a 3"), talk("a 4")]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    params["cleaning"]["max_drop_share"] = 0.25
    params["cleaning"]["on_bad_row"] = {"default": "error", "null": "drop"}
    assert refused(params) == ["data/a.jsonl:2: messages[1].content: blank [blank]"]
    params["cleaning"]["on_bad_row"]["blank"] = "drop"
    run(params)
    figures = writers.read_json(Path("reports/prepare.json"))["sources"]["a"]
    assert (figures["rows"], figures["kept"]["train"], figures["dropped"]) == (4, 3, {"blank": 1})


def test_every_cleaning_switch_works_from_the_spec_and_back(params):
    run(params)
    plain = outputs()
    before = {key: value for key, value in params["cleaning"].items()}
    secret = "nora@mail.example.org"
    rows = [talk("a\u2028 1"), talk("a 2", meta=1), talk("A  2"), talk("a 3")]
    rows += [talk(f"mail {secret}"), talk("too long " * 9), talk("x y z", group="g")]
    rows += [talk("x y z w", group="g"), talk("x y z w v", group="g"), talk("v x 8", group="g")]
    pin = params["data"]["sources"][0]["sha256"]
    params["data"]["sources"][0]["sha256"] = write("data/a.jsonl", rows)
    sha256 = write("data/list.jsonl", [{"name": "mail", "pattern": r"\w+@\w+"}])
    params["cleaning"] |= {
        "normalise": {"newlines": "lf", "unicode": "nfkc", "whitespace": "collapse"},
        "filters": {**before["filters"], "max_chars": 40},
        "patterns": [{"name": "pii", "uri": "data/list.jsonl", "sha256": sha256, "action": "drop"}],
        "near_duplicates": {"threshold": 0.7, "shingle": 1},
        "balance": {"by": "group", "max_rows": 1},
        "leakage_near": {"threshold": 0.9, "shingle": 2},
        "leakage_groups": "report",
    }
    run(params)
    ledger = writers.read_jsonl(Path("build/prepare/ledger.jsonl"))
    reasons = sorted((row["line"], row["reason"]) for row in ledger if row["source"] == "a")
    assert [reason for reason in reasons if reason[1] != "balance"] == [
        (3, "duplicate"),
        (5, "pattern"),
        (6, "max_chars"),
        (8, "near_duplicate"),
    ]
    assert [reason for _, reason in reasons].count("balance") == 2
    assert not any(secret.encode() in content for content in outputs().values())
    report = writers.read_json(Path("reports/prepare.json"))
    assert report["cleaning"]["normalised"] == {"a": {"whitespace": 3}}
    assert report["rows"]["in"] == report["rows"]["kept"] + sum(report["rows"]["dropped"].values())
    # and back: the same bytes as before
    params["cleaning"] = before
    write("data/a.jsonl", rows[:4])
    params["data"]["sources"][0]["sha256"] = pin
    run(params)
    assert outputs() == plain


def test_a_pattern_list_is_pinned_and_checked_with_all_other_files(params):
    params["cleaning"]["patterns"] = [
        {"name": "p", "uri": "data/list.jsonl", "sha256": "0" * 64, "action": "drop"}
    ]
    params["data"]["eval"]["sha256"] = None
    assert refused(params) == [
        "data/eval.jsonl: data.eval.sha256: has no sha256 [unpinned]",
        "cleaning.patterns[0].uri: 'data/list.jsonl' does not exist [no-file]",
    ]


def test_runs_without_torch(params):
    writers.write_json(Path("params.yaml"), params)
    code = (
        "import sys; from hashtune.stages import prepare; "
        "prepare.run(); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
