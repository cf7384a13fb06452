"""Stage tokenize end to end on the synthetic base."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import writers
from hashtune.chat import over_length
from hashtune.chat.limits import loss, read_distribution
from hashtune.errors import InputError
from hashtune.packing.bins import pack_lengths
from hashtune.records import conversation_schema
from hashtune.spec.load import read_params
from hashtune.stages import tokenize
from hashtune.store.loader import load_tokenizer, resolve
from hashtune.store.manifest import Source, manifest_json, read_manifest
from hashtune.store.synthetic import CHAT_TEMPLATE

REPOSITORY = Path(__file__).parents[2]
NAMES = ("train.parquet", "eval.parquet", "ledger.jsonl", "lengths.json")
FILES = [*(f"build/tokenize/{name}" for name in NAMES)]
FILES += ["reports/tokenize.json", "reports/plots/lengths.tsv"]
PIN = writers.sha256_bytes(CHAT_TEMPLATE.encode())
TALK = [{"role": "user", "content": "What is ice?"}, {"role": "assistant", "content": "Water."}]


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    manifest = resolve(source, name="tiny", say=lambda text: None)
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
    return tmp_path


def write_params(
    *, over_length: str = "drop", sha256: str = PIN, max_seq_len: int = 64, **tokenizer: Any
) -> None:
    defaults = read_params(REPOSITORY / "params.yaml")
    data = defaults["data"]
    data |= {"max_seq_len": max_seq_len, "loss_on": "assistant", "over_length": over_length}
    settings = {
        "chat_template": "base",
        "sha256": sha256,
        "added_tokens": [],
        "template_kwargs": {},
        "stops": [],
        "date": "2025-01-01",
        "unstable": "error",
        "mismatch": "error",
        "special_in_content": "error",
        "system": "error",
    }
    cleaning = defaults["cleaning"]
    params = {"data": data, "tokenizer": settings | tokenizer, "cleaning": cleaning}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


def write_split(name: str, *talks: list[dict[str, Any]]) -> None:
    rows = [
        {
            "id": f"{name}{index}",
            "source": "toy",
            "line": index + 1,
            "group": None,
            "messages": writers.canonical_json(talk, indent=None),
        }
        for index, talk in enumerate(talks)
    ]
    writers.write_parquet(Path(f"build/prepare/{name}.parquet"), rows, conversation_schema())


def long_talk() -> list[dict[str, Any]]:
    return [TALK[0], {"role": "assistant", "content": "Water. " * 60}]


def test_examples_ledger_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    write_params()
    write_split("train", TALK, long_talk(), TALK + TALK)
    write_split("eval", TALK)
    tokenize.run()
    train = writers.read_parquet(Path("build/tokenize/train.parquet"))
    assert [row["id"] for row in train] == ["train0", "train2"]
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    for row, turns in zip(train, (1, 2), strict=True):
        trained = [label for label in row["labels"] if label != -100]
        assert tokenizer.decode(trained) == "Water.<|im_end|>" * turns
        assert len(row["labels"]) == len(row["input_ids"])
    text = "<|im_start|>user\nWhat is ice?<|im_end|>\n<|im_start|>assistant\nWater.<|im_end|>\n"
    assert tokenizer.decode(train[0]["input_ids"]) == text
    (line,) = writers.read_jsonl(Path("build/tokenize/ledger.jsonl"))
    assert (line["split"], line["id"], line["line"]) == ("train", "train1", 2)
    assert line["reason"] == "over_length"
    report = writers.read_json(Path("reports/tokenize.json"))
    assert report["stops"] == ["<|im_end|>", "<|endoftext|>"]
    assert report["template_sha256"] == PIN
    rule = {  # C24: what decides where the loss begins
        **{"chat_template": "base", "template_kwargs": {}, "date": "2025-01-01"},
        **{"mismatch": "error", "unstable": "error", "system": "error", "loss_on": "assistant"},
    }
    assert {key: report[key] for key in rule} == rule
    split = report["train"]
    assert (split["rows_in"], split["kept"], split["dropped"]) == (3, 2, {"over_length": 1})
    assert split["tokens"] == sum(len(row["input_ids"]) for row in train)
    assert split["turns"] == split["turns_trained"] == 4
    assert [sample["last"] for sample in split["samples"]] == ["<|im_end|>"] * 2
    assert "".join(split["samples"][0]["first"]).startswith("Water.")
    assert report["eval"]["kept"] == 1
    assert "length_curve" not in split and split["limits"][-1]["examples_lost"] == 0
    curve = Path("reports/plots/lengths.tsv").read_text(encoding="utf-8").splitlines()
    assert curve[-1] == f"{split['lengths']['max']}\t1.000000\t1.000000"
    assert "train trained_tokens" in capsys.readouterr().out
    machine = writers.read_json(Path("reports/machine/tokenize.json"))
    assert machine["output"] == "build/tokenize/train.parquet"


def test_escaped_rows_are_counted() -> None:
    write_params(special_in_content="escape")
    forged = [{"role": "user", "content": "What<|im_end|>is ice?"}, TALK[1]]
    write_split("train", TALK, forged)
    write_split("eval", TALK)
    tokenize.run()
    report = writers.read_json(Path("reports/tokenize.json"))
    assert [report[name]["escaped_conversations"] for name in ("train", "eval")] == [1, 0]
    plain, row = writers.read_parquet(Path("build/tokenize/train.parquet"))
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert row["input_ids"].count(end) == plain["input_ids"].count(end) == 2
    user = "<|im_start|>user\nWhat<|im_end|>is ice?<|im_end|>\n"
    text = user + "<|im_start|>assistant\nWater.<|im_end|>\n"
    assert tokenizer.decode(row["input_ids"]) == text


def test_same_input_same_bytes() -> None:
    write_params()
    write_split("train", TALK, long_talk())
    write_split("eval")
    outputs = [*FILES]
    tokenize.run()
    first = [Path(name).read_bytes() for name in outputs]
    tokenize.run()
    assert [Path(name).read_bytes() for name in outputs] == first


@pytest.mark.parametrize("count", ["2", "3", "40"])
def test_the_number_of_processes_changes_no_byte(
    monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    write_params()
    talks = [[TALK[0], {"role": "assistant", "content": "Water. " * n}] for n in range(1, 30)]
    write_split("train", *talks)
    write_split("eval", TALK)
    files = [Path(name) for name in FILES]
    outputs = []
    for chunk_rows, processes in ((128, "1"), (2, "1"), (2, count)):
        monkeypatch.setattr(tokenize, "CHUNK_ROWS", chunk_rows)
        monkeypatch.setenv("HASHTUNE_PROCESSES", processes)
        tokenize.run()
        outputs.append([file.read_bytes() for file in files])
    assert outputs[0] == outputs[1] == outputs[2]
    report = writers.read_json(Path("reports/tokenize.json"))["train"]
    assert (report["rows_in"], report["dropped"]) == (29, {"over_length": 29 - report["kept"]})
    assert 0 < report["kept"] < 29


def test_findings_of_several_processes_come_in_the_order_of_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenize, "CHUNK_ROWS", 1)
    monkeypatch.setenv("HASHTUNE_PROCESSES", "2")
    write_params()
    write_split("train", *[[*TALK, TALK[0]] if n % 2 else TALK for n in range(8)])
    write_split("eval", TALK)
    assert [line.split(": ")[0] for line in refusal()] == ["toy:2", "toy:4", "toy:6", "toy:8"]


def test_a_number_of_processes_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASHTUNE_PROCESSES", "many")
    write_params()
    write_split("train", TALK)
    write_split("eval", TALK)
    assert refusal() == [
        *["HASHTUNE_PROCESSES is 'many', expected a whole number from 1 [processes]"] * 2
    ]


def refusal() -> list[str]:
    with pytest.raises(InputError) as caught:
        tokenize.run()
    assert not Path("build/tokenize").exists() and not Path("reports").exists()
    return [str(finding) for finding in caught.value.findings]


def test_all_findings_of_both_splits_at_once() -> None:
    write_params()
    forged = [{"role": "user", "content": "hi<|im_end|>"}, TALK[1]]
    write_split("train", TALK, [*TALK, TALK[0]], forged)
    write_split("eval", [TALK[0], {"role": "assistant", "content": None}])
    assert [line.split("\n")[0] for line in refusal()] == [
        "toy:2: messages[2]: nothing to learn after messages[1] [trailing]",
        "toy:3: messages[0].content: holds the control token '<|im_end|>' [control-token]",
        "toy:1: messages[1].content: null and no tool_calls [null-content]",
    ]


def test_over_length_as_an_error() -> None:
    write_params(over_length="error")
    write_split("train", TALK, long_talk())
    write_split("eval", TALK)
    (line,) = refusal()
    assert line.startswith("toy:2: ")
    assert "exceed 64" in line


def test_nothing_left_is_refused() -> None:
    write_params()
    write_split("train", long_talk())
    write_split("eval", TALK)
    assert refusal()[0].startswith("no example of train is left: 1 in, 1 over-long")


def test_another_template_is_refused() -> None:
    write_params(sha256="0" * 64)
    write_split("train", TALK)
    write_split("eval", TALK)
    (line,) = refusal()
    assert PIN in line and "0" * 64 in line


TEXT = [{"role": "text", "content": "Water boils."}]


def test_plain_text_beside_conversations_is_trained_whole() -> None:
    """The synthetic tokenizer has no BOS of its own; its EOS is the end of turn, id 2."""
    write_params()
    write_split("train", TALK, TEXT)
    write_split("eval", TEXT)
    tokenize.run()
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    talk, text = writers.read_parquet(Path("build/tokenize/train.parquet"))
    assert tokenizer.decode(text["input_ids"]) == "Water boils.<|im_end|>"
    assert text["labels"] == [-100, *text["input_ids"][1:]]
    assert "".join(tokenizer.decode([i for i in talk["labels"] if i > 0])) == "Water.<|im_end|>"
    report = writers.read_json(Path("reports/tokenize.json"))
    assert report["train"]["turns"] == report["train"]["turns_trained"] == 2
    assert report["eval"]["trained_tokens"] == len(text["input_ids"]) - 1


def test_over_long_plain_text_is_dropped_refused_or_split() -> None:
    long = [{"role": "text", "content": "Water. " * 60}]
    write_params()
    write_split("train", TEXT, long)
    write_split("eval", TEXT)
    tokenize.run()
    report = writers.read_json(Path("reports/tokenize.json"))["train"]
    assert (report["kept"], report["dropped"]) == (1, {"over_length": 1})
    whole = report["tokens_lost"]
    write_params(over_length="split")
    tokenize.run()
    report = writers.read_json(Path("reports/tokenize.json"))["train"]
    pieces = writers.read_parquet(Path("build/tokenize/train.parquet"))[1:]
    assert [row["id"] for row in pieces] == [f"train1.{n}" for n in range(1, len(pieces) + 1)]
    assert (report["rows_in"], report["kept"], report["dropped"]) == (2, 2, {})
    examples = 1 + len(pieces)
    assert report["examples"] == {"in": examples, "kept": examples, "dropped": {}}
    assert sum(len(row["input_ids"]) - 1 for row in pieces) == whole - 1
    assert {len(row["input_ids"]) for row in pieces[:-1]} == {64}


def test_over_long_conversations_are_split_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five rounds, as many as fit into 64 tokens are kept, as they stand in the whole."""
    talks = [TALK * rounds for rounds in range(1, 6)]
    write_params(over_length="split")
    write_split("train", *talks, [*long_talk(), *TALK], [*TALK, *long_talk()])
    write_split("eval", TALK)
    outputs = []
    for chunk_rows, processes in ((128, "1"), (2, "1"), (2, "3")):
        monkeypatch.setattr(tokenize, "CHUNK_ROWS", chunk_rows)
        monkeypatch.setenv("HASHTUNE_PROCESSES", processes)
        tokenize.run()
        outputs.append([Path(name).read_bytes() for name in FILES])
    assert outputs[0] == outputs[1] == outputs[2]
    rows = writers.read_parquet(Path("build/tokenize/train.parquet"))
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    once = tokenizer.decode(rows[0]["input_ids"])
    size = len(rows[0]["input_ids"])  # of a round with the newline behind its stop
    fit = 65 // size
    assert 1 < fit < 5
    assert [row["id"] for row in rows] == [f"train{n}" for n in (0, 1, 2, 3, 4, 6)]
    for row, rounds in zip(rows, (1, 2, 3, 4, 5, 1), strict=True):
        whole = once * min(rounds, fit)
        cut = rounds > fit or row["id"] == "train6"
        assert tokenizer.decode(row["input_ids"]) == (whole[:-1] if cut else whole)
        trained = [label for label in row["labels"] if label != -100]
        assert tokenizer.decode(trained) == "Water.<|im_end|>" * min(rounds, fit)
    report = writers.read_json(Path("reports/tokenize.json"))["train"]
    ledger = writers.read_jsonl(Path("build/tokenize/ledger.jsonl"))
    cut_short = [n for n in range(1, 6) if n > fit]
    wanted = [(f"train{n - 1}", "over_length_cut") for n in cut_short]
    wanted += [("train5", "over_length"), ("train6", "over_length_cut")]
    assert [(line["id"], line["reason"]) for line in ledger] == wanted
    assert f"trained turns lost: {fit + 1}" in ledger[0]["detail"]
    counts = (report["rows_in"], report["kept"], report["cut"], report["dropped"])
    assert counts == (7, 6, len(cut_short) + 1, {"over_length": 1})
    assert report["turns_lost"] == sum(n - fit for n in cut_short) + 2 + 1
    assert report["turns_trained"] == report["turns"] == 15 + 4
    assert report["tokens"] == sum(len(row["input_ids"]) for row in rows)


@pytest.mark.parametrize("policy", ["drop", "split"])
def test_the_table_of_any_limit_says_what_the_stage_loses_there(policy: str) -> None:
    """From a run that loses nothing, for limits around every edge; packing holds what is left."""
    talks = [TALK * rounds for rounds in (1, 1, 2, 3, 4)]
    write_params(over_length="drop", max_seq_len=1024)
    write_split("train", *talks)
    write_split("eval", TALK)
    tokenize.run()
    table = read_distribution(
        writers.read_json(Path("build/tokenize/lengths.json"))["train"][policy]
    )
    sizes = sorted({len(row["input_ids"]) for row in writers.read_parquet(Path(FILES[0]))})
    shortest = sizes[0] if policy == "drop" else sizes[0] - 1  # without the newline behind a stop
    for limit in (sizes[0], sizes[1] - 1, sizes[1], sizes[2] - 2, sizes[-1] - 1, sizes[-1]):
        write_params(over_length=policy, max_seq_len=limit)
        tokenize.run()
        report = writers.read_json(Path("reports/tokenize.json"))["train"]
        assert loss(table, limit) == {
            "max_seq_len": limit,
            "examples_lost": report["examples"]["in"] - report["examples"]["kept"],
            "turns_lost": report["turns_lost"],
            "tokens_lost": report["tokens_lost"],
            "trained_tokens_lost": report["trained_tokens_lost"],
        }
        kept = [len(row["input_ids"]) for row in writers.read_parquet(Path(FILES[0]))]
        assert sum(kept) == report["tokens"]
        packed = pack_lengths(kept, limit)
        assert sum(kept[number] for row in packed for number in row) == report["tokens"]
    write_params(over_length=policy, max_seq_len=shortest - 1)
    with pytest.raises(InputError, match="no example of train is left: 5 in, 5 over-long"):
        tokenize.run()
    lost = loss(table, shortest - 1)
    assert (lost["examples_lost"], lost["trained_tokens_lost"]) == (5, table.trained[-1])
    assert loss(table, 1) == {**lost, "max_seq_len": 1}


def test_an_interrupt_leaves_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a split: no half of an output under its name, and no new report."""
    write_params()
    write_split("train", TALK, TALK * 2, TALK * 3)
    write_split("eval", TALK)
    monkeypatch.setattr(tokenize, "CHUNK_ROWS", 1)
    monkeypatch.setenv("HASHTUNE_PROCESSES", "1")
    whole, seen = tokenize.tokenize_conversation, []

    def stop_at_the_third(*arguments: Any, **more: Any) -> Any:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return whole(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(tokenize, "tokenize_conversation", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            tokenize.run()
    assert not Path("build/tokenize").exists() and not Path("reports").exists()
    tokenize.run()
    before = [Path(name).read_bytes() for name in FILES]
    write_split("train", TALK * 2, TALK, TALK)
    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(tokenize, "tokenize_conversation", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            tokenize.run()
    assert [Path(name).read_bytes() for name in FILES] == before
    assert sorted(path.name for path in Path("build/tokenize").iterdir()) == sorted(NAMES)
    assert sorted(path.name for path in Path("build").iterdir()) == ["base", "prepare", "tokenize"]


def test_a_cut_one_token_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = over_length.turn_ends
    monkeypatch.setattr(over_length, "turn_ends", lambda labels: [e - 1 for e in right(labels)])
    write_params(over_length="split")
    write_split("train", TALK, TALK * 5)
    write_split("eval", TALK)
    first, second = refusal()
    assert first.startswith("toy:2: the cut at token ") and "loses the trained turn" in second


def test_control_tokens_in_plain_text_are_refused_with_their_line() -> None:
    write_params()
    write_split("train", TALK, [{"role": "text", "content": "a<|im_end|>b"}])
    write_split("eval", TEXT)
    assert [line.split("\n")[0] for line in refusal()] == [
        "toy:2: text: holds the control token '<|im_end|>' [control-token]"
    ]
