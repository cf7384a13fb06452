"""Stage pack end to end on hand-made tokens."""

from pathlib import Path
from typing import Any

import pytest

from hashtune import records, writers
from hashtune.errors import InputError
from hashtune.spec.load import read_params
from hashtune.stages import pack

REPOSITORY = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "data.max_seq_len": 8,
    "data.packing": True,
    "batch.micro": 1,
    "batch.grad_accum": 2,
    "duration.epochs": 2,
    "duration.max_steps": None,
    "data_seed": 7,
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_params()
    write_examples("train", [7, 5, 4, 3, 2, 2])
    write_examples("eval", [3, 8, 2, 8])
    return tmp_path


def write_params(**changes: Any) -> None:
    """params.yaml of this repository with SETTINGS and `changes` ("data.packing") put in."""
    from omegaconf import OmegaConf

    params = OmegaConf.create(read_params(REPOSITORY / "params.yaml"))
    for key, value in (SETTINGS | changes).items():
        OmegaConf.update(params, key, value)
    OmegaConf.save(params, "params.yaml")


def write_examples(split: str, lengths: list[int]) -> None:
    examples = [
        {
            "id": f"{split}{n}",
            "conversation_id": f"{split}{n}",
            "source": "toy",
            "input_ids": list(range(10 * n, 10 * n + length)),
            "labels": list(range(10 * n, 10 * n + length)),
            "straddling": 0,
        }
        for n, length in enumerate(lengths)
    ]
    path = Path(f"build/tokenize/{split}.parquet")
    writers.write_parquet(path, examples, records.example_schema())


def outputs() -> dict[str, bytes]:
    files = [*Path("build/pack").iterdir(), Path("reports/pack.json")]
    return {path.as_posix(): path.read_bytes() for path in files}


def test_c33_rows_steps_and_report(checkout: Path) -> None:
    pack.run()
    train = writers.read_parquet(Path("build/pack/train.parquet"))
    assert [row["example_ids"] for row in train] == [
        ["train0"],
        ["train1", "train3"],
        ["train2", "train4", "train5"],
    ]
    assert train[1]["labels"] == [-100, 11, 12, 13, 14, -100, 31, 32]
    steps = writers.read_parquet(Path("build/pack/steps.parquet"))
    assert [(step["step"], step["epoch"], len(step["rows"])) for step in steps] == [
        (1, 1, 2),
        (2, 1, 1),
        (3, 2, 2),
        (4, 2, 1),
    ]
    report = writers.read_json(Path("reports/pack.json"))
    assert report["train"]["rows"] == report["train"]["lower_bound_rows"] == 3
    assert report["train"]["tokens"] == 23
    assert report["train"]["padding_fraction_after"] == pytest.approx(1 / 24, abs=1e-6)  # C33
    assert report["plan"]["trained_tokens_seen"] == 2 * (23 - 6)


def test_eval_rows_hold_one_document_longest_first(checkout: Path) -> None:
    pack.run()
    rows = writers.read_parquet(Path("build/pack/eval.parquet"))
    assert [row["example_ids"] for row in rows] == [["eval1"], ["eval3"], ["eval0"], ["eval2"]]
    assert [row["row"] for row in rows] == [0, 1, 2, 3]


def test_packing_off(checkout: Path) -> None:
    write_params(**{"data.packing": False})
    pack.run()
    rows = writers.read_parquet(Path("build/pack/train.parquet"))
    assert [row["lengths"] for row in rows] == [[7], [5], [4], [3], [2], [2]]


def test_same_inputs_same_bytes_whatever_the_split_into_micro_batches(checkout: Path) -> None:
    pack.run()
    first = outputs()
    pack.run()
    assert outputs() == first
    write_params(**{"batch.micro": 2, "batch.grad_accum": 1})
    pack.run()
    assert outputs() == first


@pytest.mark.parametrize(("most", "said"), [(6, False), (7, True), (None, False)])
def test_a_cut_that_cuts_nothing_is_said(
    checkout: Path, most: int | None, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three rows, one a step: two epochs hold six steps."""
    write_params(**{"batch.grad_accum": 1, "duration.max_steps": most})
    pack.run()
    text = "hint: duration.max_steps 7 cuts nothing: 2 epochs hold 6 steps (3 rows, 1 a step)"
    assert (text in capsys.readouterr().out) is said


@pytest.mark.parametrize("grad_accum", [3, 10**9])
def test_a_step_larger_than_the_rows_is_one_for_each_epoch(checkout: Path, grad_accum: int) -> None:
    write_params(**{"batch.grad_accum": grad_accum})
    pack.run()
    steps = writers.read_parquet(Path("build/pack/steps.parquet"))
    assert [sorted(step["rows"]) for step in steps] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_all_rows_masked_are_refused_in_both_splits(checkout: Path, split: str) -> None:
    """No plan of pack has a step or an eval set without a trained token."""
    file = Path(f"build/tokenize/{split}.parquet")
    examples = writers.read_parquet(file)
    for example in examples:
        example["labels"] = [7, *[records.IGNORE_INDEX] * (len(example["labels"]) - 1)]
    writers.write_parquet(file, examples, records.example_schema())
    with pytest.raises(InputError) as caught:
        pack.run()
    assert {f.rule for f in caught.value.findings} == {"nothing-to-learn"}
    assert len(caught.value.findings) == len(examples)
    assert not Path("build/pack").exists()


@pytest.mark.parametrize("split", ["train", "eval"])
def test_no_examples_is_refused_and_nothing_written(checkout: Path, split: str) -> None:
    write_examples(split, [])
    with pytest.raises(InputError, match="no-examples"):
        pack.run()
    assert not Path("build/pack").exists()
    assert not Path("reports").exists()


def test_a_longer_example_is_refused(checkout: Path) -> None:
    write_params(**{"data.max_seq_len": 6})
    with pytest.raises(InputError, match=r"example 0 \(train0\) has 7 tokens"):
        pack.run()
    assert not Path("build/pack").exists()
