"""hashtune review on commits of a small repository: what is read is Git's, conf/ included."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hashtune.cli.main import main

TRACKED = ("conf", "data/triage", "data/suites", "data/replay", "reports")
FILES = ("dvc.yaml", "params.yaml", "requirements.lock", "dvc.lock", ".dvc/config", ".dvcignore")


def git(*arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def committed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a project without code of its own tracks, as the branch main."""
    folder = tmp_path_factory.mktemp("committed")
    for name in TRACKED:
        shutil.copytree(root / name, folder / name)
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        git("init", "-q", "-b", "main")
        commit("main")
    return folder


def commit(message: str) -> None:
    git("add", "-A")
    git("commit", "-q", "-m", message)


@pytest.fixture
def project(committed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a fresh branch `side`."""
    monkeypatch.chdir(committed)
    git("checkout", "-q", "-f", "main")
    git("clean", "-q", "-f", "-d")
    git("checkout", "-q", "-B", "side")
    return committed


def replaced(file: str, old: str, new: str) -> None:
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")


def reviewed(capsys: pytest.CaptureFixture[str], span: str = "main..side") -> str:
    assert main(["review", span]) == 0
    return capsys.readouterr().out


def test_a_change_in_conf_that_was_composed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced("conf/optim/adamw.yaml", "lr: 0.001", "lr: 0.0005")
    assert main(["compose"]) == 0
    capsys.readouterr()
    commit("rate")
    replaced("conf/optim/adamw.yaml", "lr: 0.0005", "lr: 0.7")  # not committed, so not told
    page = reviewed(capsys)
    assert page.startswith(f"# Review of {git('rev-parse', '--short=12', 'main')}..")
    assert "`optim.lr`: `0.001` → `0.0005`" in page
    assert page.count("**Warning:**") == 1  # results are not the head's
    assert "conf/ gives" not in page
    assert reviewed(capsys, "main..main").count("**Warning:**") == 0


def test_conf_that_was_not_composed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced("conf/optim/adamw.yaml", "lr: 0.001", "lr: 0.0005")
    commit("forgotten")
    page = reviewed(capsys)
    assert "No setting changed." in page
    assert (
        "params.yaml does not have what conf/ gives now (`optim.lr: conf/ says 0.0005, params.yaml"
        " says 0.001`)"
    ) in page


def test_params_that_conf_does_not_give(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Edited by hand, or an override: the next composition takes it back."""
    replaced("params.yaml", "lr: 0.001", "lr: 0.0005")
    commit("by hand")
    page = reviewed(capsys)
    assert "`optim.lr`: `0.001` → `0.0005`" in page
    assert "params.yaml holds values that conf/ does not give (`optim.lr: conf/ says 0.001" in page


def test_conf_that_does_not_compose(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced("conf/config.yaml", "optim: adamw", "optim: adam")
    commit("typo")
    assert "conf/ of the head does not compose: `" in reviewed(capsys)


def test_a_merge_is_told_as_what_it_brings(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """main goes on with another setting; of the merge against main only the side's is new."""
    replaced("params.yaml", "lr: 0.001", "lr: 0.0005")
    commit("side")
    git("checkout", "-q", "-b", "trunk", "main")
    replaced("params.yaml", "weight_decay: 0.0", "weight_decay: 0.1")
    commit("trunk")
    git("merge", "-q", "--no-edit", "side")
    page = reviewed(capsys, "trunk~1..trunk")
    assert "`optim.lr`: `0.001` → `0.0005`" in page
    assert "weight_decay`: " not in page
    page = reviewed(capsys, "trunk~1..side")
    assert "The base is no ancestor of the head" in page
    assert "`optim.weight_decay`: `0.1` → `0`" in page
    git("checkout", "-q", "side")
    git("branch", "-q", "-D", "trunk")
