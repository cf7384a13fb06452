"""hashtune step N --run of a branched run: it begins at the branch, and not before it."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml

from hashtune import writers
from hashtune.cli.main import main
from hashtune.spec.load import read_params
from hashtune.stages import pack, train
from hashtune.training.signals import StopRequest

Call = Callable[..., tuple[int, str, str]]
CURVE = Path("build/train/curves/plots/metrics/train/loss.tsv")
LOCK = "stages: {pack: {params: {params.yaml: {data.max_seq_len: 40}}}}\n"


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(scope="module")
def branched(outputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose run of five steps branched after step 2 of another one."""
    folder = tmp_path_factory.mktemp("branched") / "project"
    shutil.copytree(outputs, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHTUNE_HOME", str(folder / "home"))
        patch.chdir(folder)
        patch.setattr(train, "StopRequest", Stop)
        params = read_params()
        params["method"] |= {"r": 2, "alpha": 4.0, "dropout": 0.1}
        params["duration"] |= {"epochs": 5, "max_steps": 5}
        params["data"]["max_seq_len"] = 40
        params["batch"] |= {"micro": 1, "grad_accum": 2}
        params["determinism"]["threads"] = 1
        params["plan"]["probe_steps"] = 0
        params["schedule"] |= {"name": "wsd", "warmup_fraction": None, "warmup_steps": 1}
        params["schedule"] |= {"decay": "linear", "decay_start": 3}
        params["checkpoint"]["keep_stable"] = 2
        write(params)
        Path("dvc.lock").write_text(LOCK, encoding="utf-8")
        writers.write_json(train.CODE, {"modules": {}})
        pack.run()
        train.run()
        shutil.copytree("build/train/stable", "data/stable")
        sha256 = writers.sha256_file(Path("data/stable/manifest.json"))
        pin = {"path": "data/stable", "sha256": sha256}
        params["schedule"] |= {"decay_start": 2, "branch_from": pin}
        params["checkpoint"]["keep_stable"] = None
        write(params)
        train.run()
    yield folder
    torch.use_deterministic_algorithms(False)


def write(params: dict) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


@pytest.fixture
def step(
    branched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs the command in the project; gives exit code, stdout and stderr."""
    monkeypatch.setenv("HASHTUNE_HOME", str(branched / "home"))
    monkeypatch.chdir(branched)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["step", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("3", "  from the state of the branch after step 2\n"),
        ("5", "  from the state of the branch after step 2, steps 3 to 4 trained again in memory"),
    ],
)
def test_a_step_after_the_branch_has_the_recorded_bits(
    number: str, words: str, step: Call, branched: Path
) -> None:
    before = snapshot(branched)
    code, out, err = step(number, "--run")
    assert (code, err) == (0, "")
    assert words in out
    assert "has the same loss, bit for bit" in out
    assert snapshot(branched) == before


def test_a_step_before_the_branch_was_not_run(step: Call) -> None:
    code, _, err = step("2", "--run")
    assert code == 2
    assert "N: step 2 was not run: this run branched after step 2 of another one" in err
    assert re.findall(r"\[([a-z-]+)\]", err) == ["before-branch"]
    assert step("2")[0] == 0  # its rows are those of the plan
    code, out, _ = step("2", "--run", "--adapter", "build/train/adapter")
    assert code == 0
    assert "  with the adapter build/train/adapter; dropout is not drawn" in out
