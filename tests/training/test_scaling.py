"""fp16: the unscaled norm is told, an overflow halves the scale and nothing else, exact resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune.errors import Stopped
from hashtune.records import Row
from hashtune.training import checkpoint as checkpoints
from hashtune.training.attention import check_probe, run_probe
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.scaling import build_scaler

MakeTrainee = Callable[..., Trainee]
MakeLoop = Callable[..., Loop]


def state(scale: float, clean_steps: int) -> dict[str, Any]:
    return {
        "scale": scale,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": clean_steps,
    }


@pytest.fixture
def fp16(make_loop: MakeLoop, make_trainee: MakeTrainee) -> MakeLoop:
    """A loop in fp16 whose scale is about to double: 1,999 steps without an overflow."""

    def make(run: str, *, scale: float = 2.0**10, **settings: Any) -> Loop:
        loop = make_loop(run, trainee=make_trainee(precision="fp16", dropout=0.1), **settings)
        loop.progress.scaler = state(scale, 1999)
        return loop

    return make


def same(one: Loop, other: Loop) -> bool:
    pairs = zip(one.trainee.parameters.values(), other.trainee.parameters.values(), strict=True)
    return one.progress == other.progress and all(torch.equal(a, b) for a, b in pairs)


def test_base_in_fp16_and_parameters_in_fp32(make_trainee: MakeTrainee) -> None:
    trainee = make_trainee(precision="fp16")
    trained = set(trainee.parameters)
    kinds = {n in trained: p.dtype for n, p in trainee.peft.named_parameters()}
    assert kinds == {True: torch.float32, False: torch.float16}


def test_the_probe_passes_and_its_control_fires(
    make_trainee: MakeTrainee, make_row: Callable[[int, list[int]], Row]
) -> None:
    probe = run_probe(make_trainee(precision="fp16"), make_row(1, [5, 4]))
    check_probe(probe)
    assert (probe.leak, probe.tolerance) == (0.0, 4e-3)
    assert probe.control > 10 * probe.tolerance


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_scaler_in_other_precisions(precision: str, make_trainee: MakeTrainee) -> None:
    assert build_scaler(make_trainee(precision=precision), None) is None


def test_the_norm_is_the_unscaled_one(make_loop: MakeLoop, make_trainee: MakeTrainee) -> None:
    """Of the first step: fp16 rounds to 11 bits, so 2 %; scaled it would be 65,536 times it."""
    norms = {}
    for precision in ("fp32", "fp16"):
        loop = make_loop(precision, trainee=make_trainee(precision=precision))
        points = loop.run().points
        norms[precision] = points[0]["train/grad_norm"]
        assert loop.progress.updates == 6
    assert norms["fp16"] == pytest.approx(norms["fp32"], rel=0.02)
    assert loop.progress.scaler == state(65536.0, 6)


def test_an_overflow_halves_the_scale_and_touches_nothing_else(fp16: MakeLoop) -> None:
    loop = fp16("run", scale=2.0**60, max_skipped_steps=6)
    before = [parameter.clone() for parameter in loop.trainee.parameters.values()]
    progress = loop.run()
    assert (progress.step, progress.updates, progress.skipped) == (6, 0, [1, 2, 3, 4, 5, 6])
    assert progress.scaler == state(2.0**54, 0)
    after = loop.trainee.parameters.values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_scale_doubles_and_a_resume_goes_on_from_it(fp16: MakeLoop) -> None:
    straight = fp16("straight")
    straight.run()
    assert straight.progress.scaler == state(2.0**11, 5)
    with pytest.raises(Stopped):
        fp16("cut", stop_after=3).run()
    resumed = fp16("cut")
    resumed.run()
    assert same(straight, resumed)


def test_planted_fault_the_scale_starts_anew(
    fp16: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = fp16("straight")
    straight.run()
    with pytest.raises(Stopped):
        fp16("cut", stop_after=3).run()
    real = checkpoints.load

    def load(folder: Path, **settings: Any) -> checkpoints.Loaded:
        loaded = real(folder, **settings)
        loaded.progress.scaler = None
        return loaded

    monkeypatch.setattr(checkpoints, "load", load)
    faulty = fp16("cut")
    faulty.run()
    assert not same(straight, faulty)


def test_the_best_step_is_one_with_an_update_before_it(fp16: MakeLoop) -> None:
    """Every step overflows: each evaluation is of the base, whose adapter is still zero, and would
    be refused as untrained layers."""
    loop = fp16("run", scale=2.0**60, max_skipped_steps=6, select="best")
    assert loop.run().best_step is None
    assert loop.adapter_step == 6
