"""hashtune step: which rows, documents and source lines a step saw, on a plan made by hand."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hashtune import records, writers
from hashtune.cli.main import main
from hashtune.spec.load import read_params

FIRST = """\
──────── step 1
  epoch 1, 2 rows, 3 documents, 9 tokens, 6 trained
  row 2: 2 tokens, 1 trained, weight 0.1667
    r: 2 tokens, 1 trained, build/replay/answers.jsonl:3 (replay)
  row 0: 7 tokens, 5 trained, weight 0.8333
    a: 4 tokens, 3 trained, toy.jsonl:1 (toy)
    b.2: 3 tokens, 2 trained, toy.jsonl:5 (toy)
"""
SECOND = """\
──────── step 2
  epoch 1, 1 rows, 1 documents, 3 tokens, 1 trained
  row 1: 3 tokens, 1 trained, weight 1.0000
    c#2: 3 tokens, 1 trained, more.parquet row 7 (more)
"""
# id, conversation, source, line, input ids, labels
EXAMPLES: list[tuple[str, str, str, int, list[int], list[int]]] = [
    ("a", "a", "toy", 1, [10, 11, 12, 2], [-100, 11, 12, 2]),
    ("b.2", "b", "toy", 5, [20, 21, 2], [-100, 21, 2]),
    ("c#2", "c#2", "more", 7, [30, 31, 2], [-100, -100, 2]),
    ("r", "r", "replay", 3, [40, 2], [-100, 2]),
]
ROWS = [["a", "b.2"], ["c#2"], ["r"]]
STEPS = [([2, 0], 6, 9), ([1], 1, 3)]  # rows, trained tokens, tokens
LOCK = """\
stages:
  pack:
    params:
      params.yaml:
        data_seed: 5
        data.max_seq_len: 16
  train:
    params:
      params.yaml:
        optim.lr: 0.5
"""


def write_plan() -> None:
    by_name = {name: (ids, labels) for name, _, _, _, ids, labels in EXAMPLES}
    rows = [
        {
            "row": number,
            "example_ids": names,
            "lengths": [len(by_name[name][0]) for name in names],
            "input_ids": [token for name in names for token in by_name[name][0]],
            "labels": [label for name in names for label in by_name[name][1]],
        }
        for number, names in enumerate(ROWS)
    ]
    steps = [
        {"step": n, "epoch": 1, "rows": seen, "trained_tokens": trained, "tokens": tokens}
        for n, (seen, trained, tokens) in enumerate(STEPS, 1)
    ]
    writers.write_parquet(Path("build/pack/train.parquet"), rows, records.row_schema())
    writers.write_parquet(Path("build/pack/steps.parquet"), steps, records.step_schema())


def write_origins() -> None:
    examples = [
        {
            "id": name,
            "conversation_id": conversation,
            "source": source,
            "input_ids": ids,
            "labels": labels,
            "straddling": 0,
        }
        for name, conversation, source, _, ids, labels in EXAMPLES
    ]
    conversations = [
        {"id": conversation, "source": source, "line": line, "group": None, "messages": "[]"}
        for _, conversation, source, line, _, _ in EXAMPLES
    ]
    schemas = (records.example_schema(), records.conversation_schema())
    writers.write_parquet(Path("build/tokenize/train.parquet"), examples, schemas[0])
    writers.write_parquet(Path("build/prepare/train.parquet"), conversations, schemas[1])


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("conf/config.yaml", "dvc.yaml"):
        writers.write_text(Path(name), "")
    params: dict[str, Any] = read_params(root / "params.yaml")
    source = params["data"]["sources"][0]
    params["data_seed"] = 5
    params["data"]["max_seq_len"] = 16
    params["data"]["sources"] = [
        {**source, "name": "toy", "uri": "toy.jsonl"},
        {**source, "name": "more", "uri": "more.parquet", "format": "parquet"},
    ]
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    Path("dvc.lock").write_text(LOCK, encoding="utf-8")
    write_plan()
    write_origins()
    return tmp_path


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def step(project: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command; gives exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["step", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


@pytest.mark.parametrize(("number", "expected"), [("1", FIRST), ("2", SECOND)])
def test_rows_and_documents_with_file_and_line(step: Call, number: str, expected: str) -> None:
    assert step(number) == (0, expected, "")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("0", "build/pack/steps.parquet: has no step 0; there are 1 to 2 [no-number]"),
        ("3", "build/pack/steps.parquet: has no step 3; there are 1 to 2 [no-number]"),
        ("-1", "build/pack/steps.parquet: has no step -1; there are 1 to 2 [no-number]"),
        ("two", "N: 'two' is no number of a step [bad-number]"),
        ("1.0", "N: '1.0' is no number of a step [bad-number]"),
        ("", "N: '' is no number of a step [bad-number]"),
    ],
)
def test_a_step_that_does_not_exist(step: Call, number: str, said: str) -> None:
    code, out, err = step(number)
    assert (code, out) == (2, "")
    assert said in err and "1 finding:" in err


def test_a_plan_of_other_settings_is_refused(step: Call) -> None:
    """Settings that the plan does not depend on (optim.lr) are no finding."""
    text = Path("params.yaml").read_text(encoding="utf-8")
    Path("params.yaml").write_text(text.replace("data_seed: 5", "data_seed: 6"), encoding="utf-8")
    code, out, err = step("1")
    assert (code, out) == (2, "")
    assert "data_seed: stage pack ran with 5, params.yaml says 6 [other-plan]" in err
    assert "1 finding:" in err


def test_everything_that_is_missing_is_named_at_once(step: Call) -> None:
    for name in ("pack/train", "pack/steps", "tokenize/train", "prepare/train"):
        Path(f"build/{name}.parquet").unlink()
    Path("dvc.lock").unlink()
    code, out, err = step("x")
    assert (code, out) == (2, "")
    assert "2 findings:" in err
    files = ("prepare/train", "tokenize/train", "pack/train", "pack/steps")
    named = ", ".join([*(f"build/{name}.parquet" for name in files), "dvc.lock"])
    assert f"  {named}: are missing [no-output]\n    fix: dvc repro pack\n" in err


def test_one_missing_output_is_named_alone(step: Call) -> None:
    Path("build/tokenize/train.parquet").unlink()
    said = "build/tokenize/train.parquet: is missing [no-output]\n    fix: dvc repro pack\n"
    assert step("1")[2].endswith(f"1 finding:\n  {said}")


def test_outputs_of_two_runs_are_refused(step: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: tokenize lacks a document of the plan, then prepare lacks its conversation."""
    whole = list(EXAMPLES)
    monkeypatch.setitem(globals(), "EXAMPLES", [e for e in whole if e[0] not in ("a", "b.2")])
    write_origins()
    err = step("1")[2]
    assert "2 findings:" in err
    assert "build/tokenize/train.parquet: has no example 'a' of row 0 [other-plan]" in err
    monkeypatch.setitem(globals(), "EXAMPLES", [(*whole[0][:2], "gone", *whole[0][3:]), *whole[1:]])
    write_origins()
    assert "names the source 'gone', which the spec does not declare" in step("1")[2]
    monkeypatch.setitem(globals(), "EXAMPLES", whole)
    write_origins()
    rows = [row for row in writers.read_parquet(Path("build/prepare/train.parquet"))]
    kept = [row for row in rows if row["id"] != "b"]
    schema = records.conversation_schema()
    writers.write_parquet(Path("build/prepare/train.parquet"), kept, schema)
    assert "build/prepare/train.parquet: has no conversation 'b' [other-plan]" in step("1")[2]


def test_a_row_that_is_not_there_is_named(step: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "STEPS", [([9], 6, 9)])
    write_plan()
    assert "build/pack/train.parquet: has no row 9 of step 1 [other-plan]" in step("1")[2]


def test_a_damaged_output_is_named(step: Call) -> None:
    Path("build/tokenize/train.parquet").write_bytes(b"PAR1")
    assert "build/tokenize/train.parquet: is no Parquet file" in step("1")[2]


def test_names_of_the_data_draw_nothing_on_the_terminal(
    step: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("params.yaml").read_text(encoding="utf-8")
    Path("params.yaml").write_text(text.replace("uri: toy.jsonl", 'uri: "to\\ey"'))
    assert "to\\x1by:1 (toy)" in step("1")[1]


def test_torch_is_not_needed(project: Path, root: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from hashtune.cli.main import main; sys.exit(main(['step', '1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, FIRST), done.stderr
