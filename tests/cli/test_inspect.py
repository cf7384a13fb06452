"""hashtune inspect on outputs of the real tokenize and pack stages, synthetic base."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from hashtune import writers
from hashtune.cli.main import main
from hashtune.records import conversation_schema, row_schema
from hashtune.spec.load import read_params


@pytest.fixture
def inspect(outputs, monkeypatch, capsys):
    """Runs the command; gives exit code, stdout and stderr."""
    monkeypatch.setenv("HASHTUNE_HOME", str(outputs / "home"))
    monkeypatch.chdir(outputs)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["inspect", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


def test_first_examples_with_trained_text_in_brackets(inspect):
    code, out, _ = inspect("-n", "1")
    assert code == 0
    assert out.startswith("──────── train example train1\n  source toy, conversation train1\n")
    assert out.endswith(
        "<|im_start|>user⏎\nhi<|im_end|>⏎\n<|im_start|>assistant⏎\n⟦yes<|im_end|>⟧⏎\n\n"
    )


def test_chosen_random_and_longest_examples(inspect):
    _, out, _ = inspect("--examples", "train4", "train1")
    assert out.index("example train4") < out.index("example train1")
    assert inspect("--random", "--seed", "1", "-n", "2") == inspect(
        "--random", "--seed", "1", "-n", "2"
    )
    assert "example train2" in inspect("--longest", "-n", "1")[1]
    assert "eval example eval1" in inspect("--split", "eval")[1]


def test_plain_text_shows_that_all_but_its_first_token_is_trained(inspect):
    _, out, _ = inspect("--split", "eval", "--examples", "eval2")
    assert "──────── eval example eval2\n  source toy, conversation eval2\n" in out
    assert out.endswith("I⟦ce melts.<|im_end|>⟧\n")


def test_colour_on_demand_and_data_cannot_add_any(inspect):
    _, out, _ = inspect("--examples", "train2", "--color")
    assert "\x1b[32mno\x1b[0m" in out
    assert "\\x1b[31m" in out and "\x1b[31m" not in out


def test_rows_and_steps(inspect):
    _, out, _ = inspect("--rows", "0")
    assert "train row 0" in out and "document 1 of" in out and "document 2 of" in out
    _, out, _ = inspect("--step", "1", "-n", "1")
    assert "──────── step 1\n" in out and "weight" in out
    assert out.count("train row") == 1


def test_lengths_say_what_a_limit_loses(inspect):
    told = inspect("--lengths")[1].splitlines()
    plot = [line.split() for line in told].index(["tokens", "examples"])
    lines = told[:plot]
    assert lines[0] == "──────── train lengths"
    assert lines[1].startswith("  4 examples; tokens: p50 ")
    assert lines[2] == "  data.over_length=drop"
    table = "  max_seq_len  examples_lost  turns_lost  tokens_lost  trained_tokens_lost"
    half = lines.index("  data.over_length=split")
    assert lines[3] == lines[half + 1] == table
    for part in (lines[3:half], lines[half + 1 :]):  # the long one is a single turn
        assert [line.split()[:3] for line in part if line.split()[0] == "64"] == [["64", "1", "1"]]
        assert part[-2].endswith(" loses nothing") and "at most 1 %" in part[-1]


def test_lengths_of_any_limit(inspect):
    """The four examples by hand: what a limit of one token less than each loses."""
    rows = [line.split() for line in inspect("--lengths")[1].splitlines()]
    sizes = sorted(
        len(ids) for ids in pq.read_table("build/tokenize/train.parquet")["input_ids"].to_pylist()
    )
    longest = int(next(row for row in rows if "max" in row)[-1])
    every = [*sizes, longest]  # tokenize dropped the longest
    assert len(every) == 4

    def lost(*limits: int) -> list[list[int]]:
        told = [line.split() for line in inspect("--lengths", *map(str, limits))[1].splitlines()]
        half = told.index(["data.over_length=split"])
        return [list(map(int, row)) for row in told[:half] if len(row) == 5 and row[0].isdecimal()]

    for limit in (1, *every, *(size - 1 for size in every), 10**9):
        gone = [size for size in every if size > limit]
        [row] = lost(limit)
        assert row[:2] == [limit, len(gone)]
        assert row[3] == sum(gone)
    limits = list(range(1, longest + 2))
    table = lost(*reversed(limits))
    assert [row[0] for row in table] == limits
    for column in range(1, 5):  # a larger limit never loses more
        assert [row[column] for row in table] == sorted(
            (row[column] for row in table), reverse=True
        )
    assert table[0][1:4] == [4, 4, sum(every)] and table[-1][1:] == [0, 0, 0, 0]
    assert lost(7, 7) == lost(7)


def test_lengths_are_plotted(inspect):
    lines = inspect("--lengths")[1].splitlines()
    plot = lines[[line.split() for line in lines].index(["tokens", "examples"]) + 1 :]
    assert sum(int(line.split()[1]) for line in plot) == 4
    assert plot[0].count("#") == 40 and plot[-1].count("#") == 20  # of 2 and 1


def test_dropped_rows_of_both_stages(inspect):
    _, out, _ = inspect("--dropped", "blank")
    assert out == ('──────── toy:2 (z)\n  prepare: blank: output\n{"output": " \\x1b\ufffd"}\n')
    _, out, _ = inspect("--dropped", "replay_share")
    assert out == "──────── replay:1 (z)\n  prepare: replay_share: output\n"
    _, out, _ = inspect("--dropped", "over_length")
    assert "──────── toy:3 (train3)\n  tokenize: over_length: " in out
    assert "──────── assistant ────────\nWater. Water." in out


def test_page_does_not_run_the_data(inspect, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = inspect("--html", str(page), "--examples", "train2")
    assert (code, out) == (0, f"wrote {page}\n")
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in re.sub(r"</?span[^>]*>", "", text)
    assert inspect("--html", str(tmp_path))[0] == 2
    code, _, error = inspect("--html", str(tmp_path / "nosuch" / "page.html"))
    assert (code, (tmp_path / "nosuch").exists()) == (2, False)
    assert "is no folder [unwritable]" in error


@pytest.fixture
def copied(outputs, inspect, tmp_path, monkeypatch):
    """The same with a copy of the project, to change it."""
    folder = tmp_path / "project"
    shutil.copytree(outputs, folder, ignore=shutil.ignore_patterns("home"))
    monkeypatch.chdir(folder)
    return folder


SECRET = "ann@example.org"
ESCAPED = '{"output": "ann\\u0040example.org"}'


def with_patterns():
    """A list of one pattern, pinned in the spec, and a file that holds what it finds."""
    line = json.dumps({"name": "email", "pattern": r"[a-z]+@[a-z.]+"}) + "\n"
    writers.write_text(Path("pii.jsonl"), line)
    params = read_params(Path("params.yaml"))
    pin = writers.sha256_bytes(line.encode())
    params["cleaning"]["patterns"] = [
        {"name": "pii", "uri": "pii.jsonl", "sha256": pin, "action": "drop"}
    ]
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    lines = [f'{{"output": "{SECRET}"}}', ESCAPED, '{"output": "ann at example"}']
    writers.write_text(Path("toy.jsonl"), "\n".join(lines) + "\n")
    reasons = ("pattern", "blank", "blank", "blank")
    ledger = [
        {"id": "z", "source": "toy", "line": n, "reason": reason, "detail": "pii.email in x"}
        for n, reason in zip((1, 1, 2, 3), reasons, strict=True)
    ]
    writers.write_jsonl(Path("build/prepare/ledger.jsonl"), ledger)


def test_what_a_pattern_list_keeps_out_is_not_shown(inspect, copied):
    with_patterns()
    page = copied / "page.html"
    shown = [inspect("--dropped", reason, "-n", "9")[1] for reason in ("pattern", "blank")]
    inspect("--dropped", "blank", "-n", "9", "--html", str(page))
    for text in (*shown, re.sub("<[^>]*>", "", page.read_text(encoding="utf-8"))):
        assert SECRET not in text and "0040" not in text
    assert "the text is not shown: it holds what a pattern list keeps out" in shown[0]
    assert shown[1].count("the text is not shown: pattern pii.email is found in it") == 2
    assert "ann at example" in shown[1]
    writers.write_text(Path("pii.jsonl"), "")  # another list than the spec's
    code, out, err = inspect("--dropped", "blank")
    assert (code, out) == (2, "") and "pii.jsonl: cleaning.patterns[0].sha256: " in err


def test_a_conversation_that_tokenize_dropped_is_searched_too(inspect, copied):
    with_patterns()
    rows = writers.read_parquet(Path("build/prepare/train.parquet"))
    for row in rows:
        row["messages"] = row["messages"].replace("Water.", SECRET)
    writers.write_parquet(Path("build/prepare/train.parquet"), rows, conversation_schema())
    _, out, _ = inspect("--dropped", "over_length")
    assert SECRET not in out and "pattern pii.email is found in it" in out


def test_a_page_takes_the_place_of_a_page_only(inspect, copied):
    page, data = copied / "page.html", copied / "toy.jsonl"
    assert [inspect("--html", str(page))[0] for _ in range(2)] == [0, 0]
    before = data.read_bytes()
    link = copied / "link.html"
    link.symlink_to(data)
    for file in (data, link, Path("/dev/full"), copied):
        code, out, err = inspect("--html", str(file))
        assert (code, out) == (2, "")
        assert "is there and is no page of hashtune inspect [unwritable]" in err
    assert data.read_bytes() == before
    assert link.is_symlink() and Path("/dev/full").is_char_device()
    link.unlink()
    link.symlink_to(page)  # a link to a page stays one
    assert inspect("--html", str(link), "-n", "1")[0] == 0
    assert link.is_symlink() and page.read_text(encoding="utf-8").count("<h2>") == 1


def test_rows_of_another_plan_are_named(inspect, copied):
    rows = writers.read_parquet(Path("build/pack/train.parquet"))
    steps = writers.read_parquet(Path("build/pack/steps.parquet"))
    missing = steps[0]["rows"][0]
    kept = [row for row in rows if row["row"] != missing]
    writers.write_parquet(Path("build/pack/train.parquet"), kept, row_schema())
    code, out, err = inspect("--step", "1")
    assert (code, out) == (2, "")
    assert f"has no row {missing} of step 1 [other-plan]" in err


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        ([], "tokenize/train"),
        (["--rows", "0"], "pack/train"),
        (["--step", "1"], "pack/train"),
        (["--step", "1"], "pack/steps"),
    ],
)
def test_an_output_of_another_version_names_its_columns(inspect, copied, arguments, file):
    path = f"build/{file}.parquet"
    name = "rows" if "steps" in file else "input_ids"
    pq.write_table(pq.read_table(path).drop_columns([name]), path)
    code, out, err = inspect(*arguments)
    assert (code, out) == (2, "")
    assert f"{path}: has no column {name} [broken-output]" in err


def test_options_that_say_nothing_are_refused_at_once(inspect):
    code, out, err = inspect("--step", "1", "--split", "eval", "--seed", "0", "-n", "0")
    assert (code, out) == (2, "")
    fields = [line.split(":")[0].strip() for line in err.split("\n") if line.startswith("  -")]
    assert fields == ["-n", "--split", "--seed"]
    assert inspect("--dropped", "blank", "--split", "train")[0] == 2
    assert inspect("--lengths", "0")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--examples", "train9"], "the nearest of its 3 is 'train"),
        (["--rows", "99"], "has no row 99; there are 0 to "),
        (["--rows", "-1"], "has no row -1; there are 0 to "),
        (["--step", "0"], "has no step 0; there are 1 to "),
        (["--dropped", "blnk"], "reasons: blank (1), over_length (1), replay_share (1)"),
        (["-n", "0"], "must be at least 1"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(inspect, arguments, said):
    code, out, err = inspect(*arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("arguments", [["--rows", "1", "--step", "1"], ["--split", "test"]])
def test_contradicting_options_end_with_2(inspect, arguments):
    with pytest.raises(SystemExit) as caught:
        inspect(*arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [
        ([], "tokenize"),
        (["--rows", "0"], "pack"),
        (["--step", "1"], "pack"),
        (["--dropped", "blank"], "prepare"),
        (["--lengths"], "tokenize"),
    ],
)
def test_missing_outputs_name_their_stage(tmp_path, monkeypatch, capsys, arguments, stage):
    monkeypatch.chdir(tmp_path)
    for name in ("conf/config.yaml", "dvc.yaml"):
        writers.write_text(Path(name), "")
    assert main(["inspect", *arguments]) == 2
    assert f"dvc repro {stage}" in capsys.readouterr().err


def test_a_damaged_output_is_named(inspect, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("conf/config.yaml", "dvc.yaml", "build/tokenize/train.parquet"):
        writers.write_text(Path(name), "")
    assert main(["inspect"]) == 2
    assert "is no Parquet file" in capsys.readouterr().err


def test_torch_is_not_needed_and_a_closed_pipe_is_no_fault(outputs, root):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from hashtune.cli.main import main; sys.exit(main(['inspect']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=outputs,
        env={
            "PYTHONPATH": str(root / "src"),
            "HASHTUNE_HOME": str(outputs / "home"),
            "HF_HUB_OFFLINE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        error = process.stderr.read().decode()
    assert process.returncode == 0, error
    assert "Traceback" not in error
