"""hashtune check of a spec with a branch: what train would refuse is refused before DVC runs."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune import writers
from hashtune.cli.main import main
from hashtune.spec.load import read_params, validate
from hashtune.training.identity import identity_parts

WSD = ["schedule=wsd", "schedule.warmup_fraction=null", "schedule.warmup_steps=2"]
WSD += ["schedule.decay_fraction=null", "schedule.decay_start=150"]
RATES = [0.0005, 0.001, 0.001, 0.001]  # two updates of warm-up to 0.001, two at the peak


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a state that its own spec kept after step 4, in data/stable."""
    for name in ("conf", "data"):
        shutil.copytree(root / name, tmp_path / name)
    shutil.copy2(root / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert main(["compose", *WSD, "checkpoint.keep_stable=4"]) == 0
    spec = identity_parts(validate(read_params()), []) | {"inputs": {"build/base/x": "1"}}
    points = [{"step": n, "train/lr": rate} for n, rate in enumerate(RATES, start=1)]
    progress = {"step": 4, "updates": 4, "points": points}
    state: dict[str, Any] = {"identity": "a", "spec": spec, "code": {}, "progress": progress}
    keep(state | {"rng": {}, "steps": [], "eval": ""})
    return tmp_path


def keep(state: dict[str, Any]) -> None:
    folder = Path("data/stable")
    writers.write_json(folder / "state.json", state)
    writers.write_bytes(folder / "tensors.safetensors", b"x")
    files = {
        name: {
            "size": (folder / name).stat().st_size,
            "sha256": writers.sha256_file(folder / name),
        }
        for name in ("state.json", "tensors.safetensors")
    }
    writers.write_json(folder / "manifest.json", {"step": 4, "files": files})


Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(project: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Composes the branch with these overrides and checks it."""

    def run(*overrides: str) -> tuple[int, str]:
        sha256 = writers.sha256_file(Path("data/stable/manifest.json"))
        pin = f"schedule.branch_from={{path: data/stable, sha256: '{sha256}'}}"
        main(["compose", *WSD, pin, *overrides])
        capsys.readouterr()
        code = main(["check"])
        return code, capsys.readouterr().err

    return run


def test_a_run_that_fits_is_valid(check: Check) -> None:
    assert check() == (0, "")
    assert check("schedule.decay_start=3") == (0, "")  # the fourth update is the last at the peak


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("optim.lr=0.0002", "optim.lr"),
        ("method.r=8", "method.r"),
        ("seed=7", "seed"),
        ("batch.micro=2", "batch.micro"),
        ("checkpoint.samples=0", "checkpoint.samples"),
        ("checkpoint.keep_stable=4", "checkpoint.keep_stable"),
        ("schedule.warmup_steps=3", "schedule.warmup_steps"),
        ("schedule.warmup_steps=6", "schedule.warmup_steps"),
        ("schedule.decay_start=2", "schedule.decay_start"),
    ],
)
def test_each_setting_that_differs_is_named_with_its_override(
    override: str, field: str, check: Check
) -> None:
    code, err = check(override)
    assert (code, err.count("[branch-differs]")) == (2, 1)
    assert f"override {override}: {field}: " in err


def test_a_run_that_ends_before_the_branch(check: Check) -> None:
    code, err = check("duration.max_steps=4", "schedule.decay_start=2")
    assert (code, err.count("[branch-differs]")) == (2, 2)
    assert "the branch begins after step 4: none is left" in err
    assert check("duration.max_steps=5", "schedule.decay_start=3")[0] == 0


def test_a_warm_up_that_is_a_fraction_is_left_to_train(check: Check) -> None:
    """Its length is known with the plan alone."""
    more = ("schedule.warmup_steps=null", "schedule.warmup_fraction=0.5")
    assert check(*more) == (0, "")


@pytest.mark.parametrize(
    "fault",
    [
        {"progress": {}},
        {"progress": {"step": 3, "updates": 3, "points": []}},
        {"spec": []},
        {"x": 1},
    ],
)
def test_what_is_no_state_is_a_finding(fault: dict[str, Any], check: Check) -> None:
    state = json.loads(Path("data/stable/state.json").read_text())
    keep(state | fault)
    code, err = check()
    assert (code, err.count("[branch]")) == (2, 1)
