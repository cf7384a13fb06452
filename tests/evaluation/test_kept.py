"""Batches answered before a kill: used again when all is the same, made again otherwise."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hashtune import writers
from hashtune.evaluation.kept import Kept, files_of, finish, kept_answers, speed


class Maker:
    """Counts how often a batch is made."""

    def __init__(self, value):
        self.value, self.calls = value, 0

    def __call__(self):
        self.calls += 1
        return self.value


def test_a_batch_is_made_once_and_then_read(tmp_path):
    make = Maker([[1, 2], [3]])
    for kept in (Kept(tmp_path / "k"), Kept(tmp_path / "k")):
        assert kept.batch({"answers": [[7]]}, make) == [[1, 2], [3]]
    assert (make.calls, kept.found) == (1, 1)


def test_another_batch_is_made(tmp_path):
    kept, make = Kept(tmp_path), Maker([1])
    for rows in ([[7]], [[8]], [[7], [7]]):
        kept.batch({"answers": rows}, make)
    assert make.calls == 3


@pytest.mark.parametrize("damage", ["", "{", '{"value": [2]}', "[]", "null"])
def test_a_damaged_file_is_not_trusted(tmp_path, damage):
    kept, make = Kept(tmp_path), Maker([1])
    kept.batch("a", make)
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert kept.batch("a", make) == [1]
    assert make.calls == 2
    assert kept.found == 0


def test_a_changed_value_is_not_trusted(tmp_path):
    """Planted: a bit flips in a kept answer."""
    kept, make = Kept(tmp_path), Maker([10])
    kept.batch("a", make)
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"value": [11]}))
    assert kept.batch("a", make) == [10]


def test_finish_forgets_everything(tmp_path, capsys):
    kept, make = Kept(tmp_path / "k"), Maker([1])
    kept.batch("a", make)
    kept.batch("a", make)
    finish(kept)
    assert not (tmp_path / "k").exists()
    assert "1 batches were kept from a run that was stopped" in capsys.readouterr().out
    finish(None)


def test_another_process_that_ends_meanwhile_takes_the_folder_away(tmp_path, monkeypatch):
    """Two queue workers answer the same baseline: the first to end must not fail the second."""
    folder = tmp_path / "k"
    kept, make = Kept(folder), Maker([1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: shutil.rmtree(folder, ignore_errors=True))
        assert kept.batch("a", make) == [1]
    kept.batch("a", make)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", lambda path: True)  # it was there when it was looked for
        shutil.rmtree(folder)
        assert kept.batch("a", make) == [1]
    assert kept.found == 0


def test_a_rate_is_not_told_of_a_run_that_went_on():
    went_on = Kept(Path("x"))
    went_on.found = 3
    assert speed(8, 2.0, None)["new_tokens_per_second"] == 4.0
    assert speed(8, 2.0, went_on) == {"seconds": 2.0, "new_tokens": 8, "kept_batches": 3}


def spec(**changes):
    tokenizer = SimpleNamespace(model_dump=lambda mode: {"date": changes.get("date", "2026-01-01")})
    return SimpleNamespace(
        tokenizer=tokenizer,
        evaluation=SimpleNamespace(
            engine=changes.get("engine", "transformers"),
            base_precision=changes.get("precision", "fp32"),
        ),
        determinism=SimpleNamespace(threads=changes.get("threads", 2)),
    )


def test_all_that_decides_the_bits_is_in_the_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kept_answers("evaluate", spec(), model=[]) is None  # whose code is not recorded
    code, model = Path("build/code/evaluate.json"), Path("build/train/adapter/a.safetensors")
    for file, text in ((code, "{}"), (model, "w"), (Path("build/code/regress.json"), "{}")):
        writers.write_text(file, text)

    def folder(stage="evaluate", **changes):
        return kept_answers(stage, spec(**changes), model=files_of(Path("build/train"))).folder

    seen = [folder(), folder("regress"), folder(date="x"), folder(precision="bf16")]
    seen += [folder(threads=3), folder(engine="vllm")]
    writers.write_text(code, "{ }")
    seen.append(folder())
    writers.write_text(model, "v")
    seen.append(folder())
    assert len(set(seen)) == len(seen)
    assert folder() == seen[-1]
