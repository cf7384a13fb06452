"""The rehearsal is the real step: on the synthetic base both give the same bytes, phase by phase.

bench/plan_vs_real.py tries every method, length and way of keeping activations on a real base.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from hashtune.memory.rehearsal import live
from hashtune.memory.rehearsal.live import Work, measured
from hashtune.memory.rehearsal.run import Settings, rehearse
from hashtune.memory.rehearsal.table import Rehearsal
from hashtune.records import Row
from hashtune.store.synthetic import build_synthetic
from hashtune.training.fused.attach import attach
from hashtune.training.model import Trainee

NOT_RUN = "load"  # a real load is not followed, what it left is counted


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=0)
    return folder


@pytest.fixture(scope="module")
def bench(script: Callable[[str], ModuleType]) -> Iterator[ModuleType]:
    threads = torch.get_num_threads()
    yield script("plan_vs_real")
    torch.set_num_threads(threads)


def both(
    bench: ModuleType, base: Path, settings: Settings, rows: list[Row]
) -> tuple[Rehearsal, Rehearsal]:
    """Real, then rehearsed."""
    trainee = bench.real_trainee(base, settings, rows)
    if settings.kernels == "fused":
        trainee = replace(trainee, fused=attach(trainee.peft, precision=settings.precision))
    quantised = settings.quantization.type != "none" or settings.optim.name.endswith("8bit")
    work = Work(rows, rows, settings.optim, settings.batch, settings.seed)
    real = measured(trainee, work, quantised=quantised)
    del trainee
    return real, rehearse(settings, rows, rows)


def peaks(found: Rehearsal) -> dict[str, int]:
    return {name: phase.peak for name, phase in found.phases.items() if name != NOT_RUN}


@pytest.mark.parametrize(
    "chosen",
    [
        ("lora", "none", "plain", "adamw"),
        ("qlora", "full", "plain", "adamw_8bit"),
        ("lora", "selective", "fused", "adamw"),
        ("full", "none", "plain", "adafactor"),
    ],
)
def test_the_same_bytes_in_every_phase(
    chosen: tuple[str, str, Any, Any], base: Path, bench: ModuleType
) -> None:
    """Two documents of 30 and 20 tokens in a row, two rows in a micro-batch."""
    method, checkpointing, kernels, optimizer = chosen
    case = bench.Case(method, checkpointing, False, 50)
    settings = bench.settings_of(base, case)
    settings = replace(
        settings,
        kernels=kernels,
        optim=settings.optim.model_copy(update={"name": optimizer}),
        batch=settings.batch.model_copy(update={"micro": 2, "attention": "documents"}),
    )
    rows = [Row(n, ["a", "b"], [30, 20], [5] * 50, [-100] * 20 + [5] * 30) for n in range(2)]
    real, rehearsal = both(bench, base, settings, rows)
    assert peaks(rehearsal) == peaks(real)
    assert (rehearsal.peak, rehearsal.peak_phase) == (real.peak, real.peak_phase)
    assert rehearsal.assumed == ()


def test_a_step_that_keeps_a_tensor_is_seen(
    base: Path, bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: real training keeps the last hidden states of a step, 50 tokens of 64
    floats, which no rehearsal of the right step has."""
    case = bench.Case("lora", "none", False, 50)
    settings = bench.settings_of(base, case)
    rehearsal = rehearse(settings, case.rows)
    trainee = bench.real_trainee(base, settings, case.rows)
    kept: list[Tensor] = []

    class Hoarder(Trainee):
        def hidden(self, batch: Any) -> Tensor:
            kept.append(super().hidden(batch).detach().clone())
            return super().hidden(batch)

    work = Work(case.rows, [], settings.optim, settings.batch, settings.seed)
    monkeypatch.setattr(live, "replace", lambda one, phase: hoarder(Hoarder, one, phase))
    real = measured(trainee, work)
    monkeypatch.undo()
    result = bench.Result(case, real.peak, rehearsal.peak, real.peak)
    assert len(kept) == 2  # one in each of the two steps
    assert result.right == (False, True)
    assert result.off[0] < -0.01
    assert bench.Result(case, rehearsal.peak, rehearsal.peak, real.peak).right[0]


def hoarder(kind: type[Trainee], trainee: Trainee, phase: Any) -> Trainee:
    """The same trainee of another class."""
    return kind(trainee.peft, trainee.parameters, trainee.precision, phase=phase)


def test_twice_the_same(base: Path, bench: ModuleType) -> None:
    case = bench.Case("qlora", "none", True, 40)
    settings = bench.settings_of(base, case)
    first, second = rehearse(settings, case.rows), rehearse(settings, case.rows)
    assert first.events.numbers == second.events.numbers
    assert first.events.births == second.events.births
