"""The probe: what it measures, and that it leaves no bit of the run changed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hashtune.errors import Stopped
from hashtune.records import Row
from hashtune.spec.schema import Batch
from hashtune.training import memory_probe, optimizers, untouched
from hashtune.training.loop import Loop
from hashtune.training.memory_probe import Measured, measure_steps
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan, worst_rows

MakeLoop = Callable[..., Loop]


@pytest.fixture
def single(make_row: Callable[..., Row]) -> Plan:
    """One document a row, as virtual tokens need it."""
    rows = [make_row(number, [length]) for number, length in enumerate((5, 7, 8))]
    return Plan(rows, [[0, 1], [2, 0], [1, 2]], rows[:1])


def probe(loop: Loop, steps: int = 3) -> Measured:
    found = measure_steps(loop.trainee, loop.plan, loop.settings, steps=steps)
    assert found is not None
    return found


def trained(make_loop: MakeLoop, name: str, *, probed: bool, **changes: Any) -> Loop:
    loop = make_loop(
        name, **{k: v() if k == "trainee" and callable(v) else v for k, v in changes.items()}
    )
    if probed:
        probe(loop)
    loop.run()
    return loop


def bits(loop: Loop) -> dict[str, bytes]:
    return {
        name: parameter.detach().view(torch.uint8).numpy().tobytes()
        for name, parameter in loop.trainee.parameters.items()
    }


def test_the_worst_micro_batch_is_the_longest_row_with_the_most_targets(
    make_row: Callable[..., Row],
) -> None:
    short, long = make_row(0, [6]), make_row(1, [4, 4])
    few = Row(1, long.example_ids, long.lengths, long.input_ids, [-100] * 7 + [9])
    one, *_ = rows = worst_rows([short, few], batch(micro=2, grad_accum=1))
    assert rows == [one, one]
    assert one.input_ids == few.input_ids
    assert one.labels == [-100] * 3 + few.input_ids[3:]  # the short row trains five of its six
    assert len(worst_rows([short, few], batch(micro=2, grad_accum=2))) == 4
    assert len(worst_rows([short, few], batch(micro=2, grad_accum=8))) == 4
    assert worst_rows([long], batch(micro=1, grad_accum=1))[0].labels[1:] == [
        *[-100, *long.input_ids[2:]]  # six targets: the first of each document is none
    ]


def batch(*, micro: int, grad_accum: int) -> Batch:
    return Batch(
        micro=micro, grad_accum=grad_accum, world_size=1, attention="documents", layout="rows"
    )


def test_buckets_of_the_toy_by_hand(make_loop: MakeLoop) -> None:
    """q and v of two layers with r 2: 2 * (2 * (64 + 64) + 2 * (64 + 32)) = 896 parameters; AdamW
    keeps two moments and a count of 4 bytes for each of 8 matrices. The base has 106,816."""
    found = probe(make_loop("toy"))
    held = dict(found.buckets)
    working = held.pop("working")
    inv_freq = 2 * 8 * 4  # head size 16, and transformers keeps the original beside it
    assert held == {
        "weights": 4 * 106_816 + inv_freq,
        "adapter": 4 * 896,
        "gradients": 4 * 896,
        "optimizer": 2 * 4 * 896 + 4 * 8,
    }
    assert found.peak == sum(held.values()) + working
    assert found.peak == max(found.phases.values())
    assert list(found.phases) == ["forward", "loss", "backward", "optimizer"]
    assert (found.steps, found.updates, found.row, found.rows, found.tokens) == (3, 3, 0, 1, 9)
    assert found.reserved is None


def test_full_has_no_adapter_and_gradients_of_all(
    make_loop: MakeLoop, make_full: Callable[..., Trainee]
) -> None:
    held = probe(make_loop("full", trainee=make_full())).buckets
    assert "adapter" not in held
    assert held["gradients"] == 4 * 106_816
    assert held["optimizer"] >= 8 * 106_816


def test_a_second_probe_measures_the_same(make_loop: MakeLoop) -> None:
    """Nothing of the first is left."""
    loop = make_loop("toy", dropout=0.1)
    first, second = probe(loop), probe(loop)
    assert (first.peak, first.phases, first.buckets) == (second.peak, second.phases, second.buckets)


@pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU:UserWarning")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.1, "optim": {"neftune_alpha": 5.0}},
        {"optim": {"name": "adamw_8bit"}},
        {"optim": {"name": "paged_adamw_32bit"}},
        {"optim": {"name": "paged_adamw_8bit"}},
        {"optim": {"name": "muon", "beta1": 0.95}},
        {"optim": {"name": "adafactor", "eps": 1e-30}},
        {"optim": {"name": "lion"}},
        {"batch": {"layout": "padding_free", "micro": 2, "grad_accum": 1}},
    ],
    ids=str,
)
def test_the_adapter_has_the_same_bits(
    changes: dict[str, Any], make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "CUDA_ONLY", ())  # a paged one falls back to no pages
    plain = trained(make_loop, "plain", probed=False, **changes)
    probed = trained(make_loop, "probed", probed=True, **changes)
    assert bits(probed) == bits(plain)
    assert probed.progress == plain.progress


KINDS = ("dora", "bf16", "bf16 alone", "fp16", "full", "prompt")


@pytest.fixture
def make_kind(
    make_trainee: Callable[..., Trainee],
    make_full: Callable[..., Trainee],
    make_soft: Callable[..., Trainee],
) -> dict[str, Callable[[], Trainee]]:
    return {
        "dora": lambda: make_trainee(variant="dora", dropout=0.2),
        "bf16": lambda: make_trainee(precision="bf16", dropout=0.1),
        "bf16 alone": lambda: make_trainee(precision="bf16", master_weights=False),
        "fp16": lambda: make_trainee(precision="fp16", dropout=0.1),
        "full": make_full,
        "prompt": lambda: make_soft("prompt"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_training_has_the_same_bits(
    kind: str, make_loop: MakeLoop, make_kind: dict[str, Callable[[], Trainee]], single: Plan
) -> None:
    rows = {"the_plan": single} if kind == "prompt" else {}
    plain = trained(make_loop, "plain", probed=False, trainee=make_kind[kind](), **rows)
    probed = trained(make_loop, "probed", probed=True, trainee=make_kind[kind](), **rows)
    assert bits(probed) == bits(plain)
    assert probed.progress == plain.progress


def test_a_quantised_base_stays_as_it_is(
    make_loop: MakeLoop, make_soft: Callable[..., Trainee], single: Plan
) -> None:
    """NF4 codes and their scales, which are no parameters."""
    plain, probed = (
        trained(
            *(make_loop, name),
            probed=name == "probed",
            trainee=make_soft("prefix", stored="nf4"),
            the_plan=single,
        )
        for name in ("plain", "probed")
    )
    assert bits(probed) == bits(plain)
    assert untouched.digests(probed.trainee)["base"] == untouched.digests(plain.trainee)["base"]


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_resumed_run_has_the_same_bits(at: int, make_loop: MakeLoop) -> None:
    plain = trained(make_loop, "plain", probed=False, dropout=0.1)
    stopped = make_loop("cut", dropout=0.1, stop_after=at)
    probe(stopped)
    with pytest.raises(Stopped):
        stopped.run()
    resumed = trained(make_loop, "cut", probed=True, dropout=0.1)
    assert resumed.meter.first_step == at + 1
    assert bits(resumed) == bits(plain)
    assert resumed.progress == plain.progress


def test_it_leaves_off_when_it_is_told_to(make_loop: MakeLoop) -> None:
    loop = make_loop("toy")
    asked: list[int] = []
    settings = {"steps": 5, "stop": lambda: asked.append(1) or len(asked) > 2}
    found = measure_steps(loop.trainee, loop.plan, loop.settings, **settings)
    assert found is not None
    assert found.steps == 2
    assert measure_steps(loop.trainee, loop.plan, loop.settings, steps=5, stop=lambda: True) is None


def test_nothing_is_left_in_the_run_s_folder(make_loop: MakeLoop, tmp_path: Path) -> None:
    probe(make_loop("toy"))
    assert list((tmp_path / "toy").iterdir()) == []


Fault = Callable[[Trainee], None]


def first_parameter(trainee: Trainee) -> None:
    with torch.no_grad():
        next(iter(trainee.parameters.values())).add_(1)


def frozen_weight(trainee: Trainee) -> None:
    with torch.no_grad():
        next(p for p in trainee.peft.parameters() if not p.requires_grad).view(-1)[5] += 1e-6


def last_buffer(trainee: Trainee) -> None:
    *_, buffer = trainee.peft.buffers()
    buffer += 1


def gradient(trainee: Trainee) -> None:
    parameter = next(iter(trainee.parameters.values()))
    parameter.grad = torch.zeros_like(parameter)


def mode(trainee: Trainee) -> None:
    trainee.peft.eval()


def new_switch(trainee: Trainee) -> None:
    trainee.peft.seen = 1


def draws(trainee: Trainee) -> None:
    torch.rand(3)
    random.random()
    np.random.random()


def planted(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """A step of the probe that does this too."""
    real = memory_probe.train_step

    def step(trainee: Trainee, *args: Any, **settings: Any) -> Any:
        result = real(trainee, *args, **settings)
        fault(trainee)
        return result

    monkeypatch.setattr(memory_probe, "train_step", step)


@pytest.mark.parametrize("fault", [first_parameter, last_buffer, mode, draws])
def test_what_a_step_changes_is_put_back(
    fault: Fault, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(make_loop, "plain", probed=False, dropout=0.1)
    planted(monkeypatch, fault)
    assert bits(trained(make_loop, "probed", probed=True, dropout=0.1)) == bits(plain)


@pytest.mark.parametrize(
    ("fault", "named"),
    [(frozen_weight, "base"), (gradient, "gradients"), (new_switch, "modules")],
)
def test_what_is_not_put_back_is_a_fault_of_ours(
    fault: Fault, named: str, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, fault)
    with pytest.raises(RuntimeError, match=f"the memory probe changed the run: {named}$"):
        probe(make_loop("toy"))


@pytest.mark.parametrize(
    ("forgets", "named"),
    [("_read", "trained weights"), ("restore_rng", "torch's generators")],
)
def test_planted_fault_a_probe_that_forgets_is_caught(
    forgets: str, named: str, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untouched, forgets, lambda *args: None)
    with pytest.raises(RuntimeError, match=f"changed the run: {named}"):
        probe(make_loop("toy", dropout=0.1))


@pytest.mark.parametrize("forgets", ["_read", "restore_rng"])
def test_planted_fault_unseen_it_would_train_another_adapter(
    forgets: str, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the tests above that compare bits would see it too."""
    plain = trained(make_loop, "plain", probed=False, dropout=0.1)
    monkeypatch.setattr(untouched, forgets, lambda *args: None)
    monkeypatch.setattr(untouched, "digests", lambda trainee: {})
    assert bits(trained(make_loop, "probed", probed=True, dropout=0.1)) != bits(plain)
