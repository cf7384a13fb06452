"""Curves: a replay writes what live logging wrote, nothing machine-made, and no dvc.yaml."""

import json
from pathlib import Path
from typing import Any

import pytest

from hashtune.training.curves import Curves

POINTS: list[dict[str, Any]] = [
    {"step": 1, "train/lr": 1e-4, "train/loss": 2.5},
    {"step": 2, "train/loss": 0.1 + 0.2, "train/lr": 5e-05},
    {"step": 2, "eval/loss": 1 / 3},
    {"step": 4, "train/loss": 1.25, "train/lr": 0.0},
]


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def live(folder: Path, *, replayed: int) -> dict[str, bytes]:
    saved = json.loads(json.dumps(POINTS[:replayed], sort_keys=True))  # as a checkpoint has them
    curves = Curves(folder, saved)
    for point in POINTS[replayed:]:
        curves.log(point)
    curves.end()
    return files(folder)


@pytest.mark.parametrize("replayed", [1, 2, 3, 4])
def test_a_replay_equals_live_logging(replayed: int, tmp_path: Path) -> None:
    assert live(tmp_path / "a", replayed=0) == live(tmp_path / "b", replayed=replayed)


def test_a_replay_over_the_files_of_the_killed_run(tmp_path: Path) -> None:
    """Without DVC in between the folder still holds points beyond the checkpoint."""
    curves = Curves(tmp_path / "a", POINTS[:3])
    curves.log({"step": 3, "train/loss": 99.0})
    assert live(tmp_path / "a", replayed=3) == live(tmp_path / "b", replayed=0)


def test_content(tmp_path: Path) -> None:
    written = live(tmp_path / "curves", replayed=0)
    assert sorted(written) == [
        "metrics.json",
        "plots/metrics/eval/loss.tsv",
        "plots/metrics/train/loss.tsv",
        "plots/metrics/train/lr.tsv",
    ]
    lines = written["plots/metrics/train/loss.tsv"].decode().split()
    assert lines == ["step", "loss", "1", "2.5", "2", "0.30000000000000004", "4", "1.25"]
    assert not any(b"timestamp" in data for data in written.values())


def test_dvc_yaml_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    live(Path("build/train/curves"), replayed=2)
    assert (tmp_path / "dvc.yaml").read_text() == "stages: {}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build", "dvc.yaml"]
    assert not list(tmp_path.rglob("*.html"))
