"""hashtune inspect on outputs of the real tokenize and pack stages, synthetic base."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hashtune import writers
from hashtune.cli.main import main


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
