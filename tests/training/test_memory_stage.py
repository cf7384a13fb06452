"""train with its probe and without memory: the outputs have the same bytes, the run stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hashtune import records, writers
from hashtune.errors import InputError
from hashtune.spec.load import read_params
from hashtune.stages import plan as plan_stage
from hashtune.stages import train
from hashtune.store.loader import resolve
from hashtune.store.manifest import manifest_json
from hashtune.training import checkpoint, loop, memory_probe, model, start, step
from hashtune.training.plan import Plan
from hashtune.training.signals import StopRequest

TINY: dict[str, dict[str, Any]] = {
    "base_model": {
        **{"name": "synthetic", "source": "synthetic", "repo": "tiny", "revision": "0"},
        **{"file": None, "sha256": None, "init_adapter": None},
    },
    "method": {"r": 2, "alpha": 4.0, "dropout": 0.1, "targets": ["q_proj"]},
    "optim": {"lr": 0.01},
    "batch": {"grad_accum": 2},
    "determinism": {"threads": 1},
    "checkpoint": {"every_steps": 2, "keep_last": 1, "eval_every_steps": 2, "samples": 1},
    "plan": {"rehearse": False, "probe_steps": 2, "margin": 0.15},
}
MACHINE, REPORT = Path("reports/machine/train.json"), Path("reports/plan.json")


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def write(root: Path) -> Callable[..., None]:
    """Writes params.yaml: those of this repository, TINY, then the changes."""
    params = read_params(root / "params.yaml")

    def write(**changes: dict[str, Any]) -> None:
        merged = dict(params)
        for change in (TINY, changes):
            for name, value in change.items():
                merged[name] = {**merged[name], **value}
        Path("params.yaml").write_text(yaml.safe_dump(merged), encoding="utf-8")

    return write


@pytest.fixture
def checkout(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> Path:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(train, "StopRequest", Stop)
    source: Any = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None}
    manifest = resolve({**source, "sha256": None}, name="synthetic", say=lambda text: None)
    writers.write_json(train.MANIFEST, manifest_json(manifest))
    writers.write_json(train.CODE, {"modules": {}})
    for name, rows in (("train", plan.rows), ("eval", plan.eval_rows)):
        dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in rows]
        writers.write_parquet(train.PACK / f"{name}.parquet", dicts, records.row_schema())
    table = [
        {"step": n, "epoch": 1, "rows": list(rows), "trained_tokens": 0, "tokens": 12}
        for n, rows in enumerate(plan.steps, start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", table, records.step_schema())
    write()
    plan_stage.run()
    return tmp_path


def outputs() -> dict[str, bytes]:
    paths = [*train.OUT.rglob("*"), Path("reports/train.json")]
    return {path.as_posix(): path.read_bytes() for path in paths if path.is_file()}


def memory() -> Any:
    return writers.read_json(MACHINE)["memory"]


def test_outputs_are_the_same_with_and_without_it(
    checkout: Path, write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever probe_steps and margin are, and whether there is a plan or not."""
    train.run()
    probed, found = outputs(), memory()
    assert (found["steps"], found["margin"]) == (2, 0.15)
    planned = sum(writers.read_json(REPORT)["buckets_bytes"].values()) - 1_200_000_000
    assert found["peak_bytes"]["planned"] == planned
    assert found["peak_bytes"]["measured"] <= planned * 1.15
    trained = 4 * 2 * 2 * (64 + 64)  # fp32, two layers, q_proj with r 2
    assert found["buckets_bytes"]["gradients"] == {"planned": trained, "measured": trained}
    assert "memory of 2 steps over 9 tokens (row 0)" in capsys.readouterr().out
    write(plan={"probe_steps": 1, "margin": 9.0})
    REPORT.unlink()
    train.run()
    assert outputs() == probed
    assert memory()["peak_bytes"]["planned"] is None
    assert "no reports/plan.json: what is measured" in capsys.readouterr().out
    write(plan={"probe_steps": 0})
    train.run()
    assert outputs() == probed
    assert memory() is None


def test_a_plan_of_another_run_is_not_compared_with(
    checkout: Path, write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(method={"r": 4})
    train.run()
    assert "reports/plan.json is of another run" in capsys.readouterr().out
    assert memory()["peak_bytes"]["planned"] is None


def test_steps_that_exceed_the_plan_stop_before_the_first_checkpoint(
    checkout: Path, write: Callable[..., None]
) -> None:
    """Planted: a plan that counts half of what is kept and no logits."""
    report = writers.read_json(REPORT)
    report["buckets_bytes"] |= {"activations": 1000, "logits_loss": 1000}
    writers.write_json(REPORT, report)
    with pytest.raises(InputError, match="most exceeds working memory") as caught:
        train.run()
    assert [finding.rule for finding in caught.value.findings] == ["exceeds-plan"]
    assert not list((checkout / "home/runs").glob("*/step-*"))
    write(plan={"margin": 9.0})
    train.run()


def ran_out(*_: Any, **__: Any) -> Any:
    raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")


class Nth:
    """Memory runs out in the n-th call."""

    def __init__(self, real: Any, number: int) -> None:
        self.real, self.left = real, number

    def __call__(self, *args: Any, **settings: Any) -> Any:
        self.left -= 1
        return ran_out() if self.left == 0 else self.real(*args, **settings)


def plant(patch: pytest.MonkeyPatch, place: str) -> None:
    """Of step 3 the update is the first after a resume at step 2, and the probe makes two before;
    here no state is left yet, so that it is the fifth."""
    if place == "load":
        patch.setattr(start, "load_base", ran_out)
    elif place == "proof":
        patch.setattr(start, "check_base", ran_out)
    elif place == "evaluation":
        patch.setattr(loop, "evaluate_loss", ran_out)
    elif place == "save":
        patch.setattr(checkpoint, "save_file", ran_out)
    elif place == "probe":
        patch.setattr(memory_probe, "train_step", ran_out)
    else:
        patch.setattr(step, "clip_gradients", Nth(step.clip_gradients, 5))


def test_a_run_that_ran_out_goes_on_to_the_same_bits(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.run()
    straight = outputs()
    places = {
        "load": "while the base is loaded",
        "proof": "in a proof beside the steps",
        "probe": "of the probe before the first step",
        "evaluation": r"in the evaluation after step 2 \(row 9, 11 tokens long\)",
        "save": "while the checkpoint of step 2 is written",
        "optimizer": r"in the optimizer of step 3 \(row 5, 8 tokens long\)",
    }
    for place, said in places.items():
        with monkeypatch.context() as patch, pytest.raises(InputError, match=said) as caught:
            plant(patch, place)
            train.run()
        assert [finding.rule for finding in caught.value.findings] == ["out-of-memory"]
    train.run()
    assert outputs() == straight


@pytest.mark.parametrize("phase", ["forward", "loss", "backward"])
def test_the_parts_of_a_micro_batch_are_told_apart(
    phase: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second micro-batch of step 1: the probe's two steps have four before it."""
    count = 0
    real = model.Trainee._next

    def following(self: Any, begun: Any) -> None:
        nonlocal count
        real(self, begun)
        if begun == phase and torch.is_grad_enabled() and self.phase is not model.nobody:
            count += 1
            if count == 6:
                ran_out()

    monkeypatch.setattr(model.Trainee, "_next", following)
    with pytest.raises(InputError, match=rf"in the {phase} of step 1 \(row 1, 7 tokens long\)"):
        train.run()
