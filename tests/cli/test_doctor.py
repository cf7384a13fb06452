"""What doctor says of params.yaml and conf/: "ok" stands for a valid spec that conf/ composes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hashtune.cli.doctor import CHECKS
from hashtune.cli.main import main

LABEL = "params.yaml is a valid spec, and what conf/ composes"


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without outputs, composed."""
    for name in ("conf", "data"):
        shutil.copytree(root / name, tmp_path / name)
    shutil.copy2(root / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    for command in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert main(["compose"]) == 0
    return tmp_path


def rules(project: Path) -> list[tuple[str, str | None]]:
    return [(finding.rule, finding.field) for finding in CHECKS[LABEL](project)]


def test_what_conf_composes_is_well(project: Path) -> None:
    assert rules(project) == []


def test_each_way_to_be_no_spec_is_told(project: Path) -> None:
    """Planted: doctor once passed over every finding that names no field."""
    params, conf = project / "params.yaml", project / "conf/config.yaml"
    good, whole = params.read_text(encoding="utf-8"), conf.read_text(encoding="utf-8")
    params.write_text("a: [", encoding="utf-8")
    assert rules(project) == [("yaml", None)]
    params.unlink()
    assert rules(project) == [("no-params", None)]
    params.write_text(good.replace("lr: 0.001", "lr: fast", 1), encoding="utf-8")
    assert [field for _, field in rules(project)] == ["optim.lr"]
    params.write_text(good, encoding="utf-8")
    conf.write_text("seed: [oops\n", encoding="utf-8")
    assert [rule for rule, _ in rules(project)] in (["yaml"], ["compose"])
    conf.write_text(whole.replace("\nseed: ", "\nseed: 1", 1), encoding="utf-8")
    assert rules(project) == [("stale-params", None)]
    conf.write_text(whole, encoding="utf-8")
    assert rules(project) == []


def test_an_untracked_file_is_left_to_its_own_check(project: Path) -> None:
    (project / "conf/optim/mine.yaml").write_text("name: adamw\n", encoding="utf-8")
    assert rules(project) == []
