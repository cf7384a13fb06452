"""bf16 parameters without an fp32 copy: what is stored, what rounding loses, exact bits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hashtune.errors import Stopped
from hashtune.records import Row
from hashtune.spec.precision import BF16_MOMENTS
from hashtune.spec.schema import Optim, OptimizerName
from hashtune.spec.training import CUDA_ONLY
from hashtune.training import checkpoint as checkpoints
from hashtune.training.adapter import WEIGHTS, write_adapter
from hashtune.training.gradients import clip_gradients
from hashtune.training.init_adapter import continue_from
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.optimizers import build_optimizer
from hashtune.training.plan import Plan
from hashtune.training.proof import check_moved, prove_adapter

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

MakeTrainee = Callable[..., Trainee]
MakeLoop = Callable[..., Loop]
MakeOptim = Callable[..., Optim]
WITHOUT: dict[str, Any] = {"precision": "bf16", "master_weights": False}
BF16, FP32 = torch.bfloat16, torch.float32
STATES = {  # of matrices of 128 elements, by slot; counters left out
    "adamw": {"exp_avg": BF16, "exp_avg_sq": BF16},
    "adamw_fused": {"exp_avg": BF16, "exp_avg_sq": BF16},
    "adamw_8bit": {"state1": FP32, "state2": FP32},  # codes from 4,096 elements on
    "adafactor": {"exp_avg_sq_row": FP32, "exp_avg_sq_col": FP32},
    "lion": {"state1": FP32},
    "muon": {"momentum_buffer": BF16},
    "sgd": {"momentum_buffer": BF16},
}


def values(loop: Loop) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in loop.trainee.parameters.values()]


def same(one: Loop, other: Loop) -> bool:
    return all(torch.equal(a, b) for a, b in zip(values(one), values(other), strict=True))


def test_every_optimizer_is_tried() -> None:
    assert STATES.keys() == set(get_args(OptimizerName)) - CUDA_ONLY.keys()


@pytest.mark.parametrize("name", STATES)
def test_three_steps_and_a_resume_to_the_same_bits(
    name: str, plan: Plan, make_loop: MakeLoop, make_trainee: MakeTrainee, tmp_path: Path
) -> None:
    short = Plan(plan.rows, plan.steps[:3], plan.eval_rows)
    lr = 5.0 if name == "sgd" else 0.02  # its updates are lr times small gradients
    changes = {"optim": {"name": name, "lr": lr}, "the_plan": short}

    def loop(run: str, **more: Any) -> Loop:
        return make_loop(run, trainee=make_trainee(**WITHOUT, dropout=0.1), **changes, **more)

    straight = loop("straight")
    before = values(straight)
    assert straight.run().updates == 3
    assert all(parameter.dtype == BF16 for parameter in straight.trainee.parameters.values())
    moved = zip(before, values(straight), strict=True)
    assert all(not torch.equal(old, new) for old, new in moved)

    with pytest.raises(Stopped):
        loop("cut", stop_after=2).run()
    folder = checkpoints.directory(tmp_path / "cut", 2)
    kept = load_file(folder / "tensors.safetensors")
    assert {t.dtype for n, t in kept.items() if n.startswith("adapter.")} == {BF16}
    slots = {n.split(".")[1]: t.dtype for n, t in kept.items() if n.startswith("optimizer.")}
    assert {slot: slots[slot] for slot in slots if slot not in ("step", "RMS")} == STATES[name]
    resumed = loop("cut")
    resumed.run()
    assert resumed.meter.first_step == 3
    assert same(straight, resumed)


def test_planted_fault_a_resume_through_other_values_shows(
    make_loop: MakeLoop, make_trainee: MakeTrainee
) -> None:
    """The comparison above sees one bf16 step of one weight."""
    one, other = (make_loop(run, trainee=make_trainee(**WITHOUT)) for run in ("one", "other"))
    assert same(one, other)
    weight = next(iter(other.trainee.parameters.values()))
    weight.data.view(torch.int16)[0, 0] += 1
    assert not same(one, other)


def updated(optim: Optim, dtype: torch.dtype, *, steps: int) -> float:
    """A weight of 1.0 after updates by a gradient of 1."""
    weight = nn.Parameter(torch.ones(4, 4, dtype=dtype))
    optimizer = build_optimizer({"weight": weight}, optim)
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return weight.detach()[0, 0].item()


@pytest.mark.parametrize("name", ["adamw", "adamw_fused", "adamw_8bit", "adafactor", "lion", "sgd"])
def test_what_the_warning_says_is_lost_is_lost(name: str, make_optim: MakeOptim) -> None:
    """Eight updates of 2^-10 move 1.0 to 1 - 2^-7 in fp32, and nowhere in bf16; those of 2^-6,
    which bf16 can tell, move it in both."""
    settings: dict[str, Any] = {"name": name, "beta1": 0.0, "beta2": 0.99, "weight_decay": 0.0}
    small = make_optim(**settings, lr=2.0**-10)
    assert updated(small, FP32, steps=8) == pytest.approx(1 - 2.0**-7, abs=1e-5)
    assert updated(small, BF16, steps=8) == 1.0
    large = make_optim(**settings, lr=2.0**-6)
    assert updated(large, BF16, steps=8) == pytest.approx(1 - 2.0**-3, abs=2.0**-7)


@pytest.mark.parametrize("name", sorted(BF16_MOMENTS))
def test_the_second_moment_that_never_falls(name: str, make_optim: MakeOptim) -> None:
    """Of AdamW without gradients: by 0.999 a step it stays in bf16, by 0.99 it falls."""

    def left(beta2: float, dtype: torch.dtype) -> float:
        weight = nn.Parameter(torch.ones(2, 2, dtype=dtype))
        optimizer = build_optimizer({"weight": weight}, make_optim(name=name, beta2=beta2))
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
        optimizer.state[weight]["exp_avg_sq"].fill_(1.5)
        for _ in range(100):
            optimizer.step()
        return float(optimizer.state[weight]["exp_avg_sq"][0, 0])

    assert left(0.999, BF16) == 1.5
    assert left(0.999, FP32) == pytest.approx(1.5 * 0.999**100, rel=1e-4)
    assert left(0.99, BF16) < 0.8


def test_the_norm_of_bf16_gradients_is_told_in_fp32() -> None:
    """257 ones have a norm of sqrt(257); in bf16 that is 16."""
    weight = nn.Parameter(torch.ones(257, dtype=BF16))
    weight.grad = torch.ones_like(weight)
    assert float(torch.nn.utils.clip_grad_norm_([weight], 1e9)) == 16.0
    assert clip_gradients([weight], 1e9) == pytest.approx(257**0.5, rel=1e-6)
    assert torch.equal(weight.grad, torch.ones_like(weight))
    clip_gradients([weight], 1.0)
    assert float(weight.grad.float().norm()) == pytest.approx(1.0, rel=2.0**-8)


def test_fp32_gradients_are_clipped_to_torch_s_bits() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(shape) for shape in ((7, 5), (64, 3), (11,))]
    ours, theirs = ([nn.Parameter(torch.zeros_like(g)) for g in gradients] for _ in range(2))
    for parameters in (ours, theirs):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
    without = nn.Parameter(torch.zeros(2))
    norm = clip_gradients([*ours, without], 0.5)
    assert norm == float(torch.nn.utils.clip_grad_norm_([*theirs, without], 0.5))
    pairs = zip(ours, theirs, strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_the_saved_adapter_is_bf16_and_proven(
    variant: str,
    make_trainee: MakeTrainee,
    make_row: Callable[[int, list[int]], Row],
    tmp_path: Path,
) -> None:
    trainee = make_trainee(**WITHOUT, variant=variant)
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    folder = tmp_path / "a"
    write_adapter(trainee.peft, folder, base_name="b", revision="1")
    saved = load_file(folder / WEIGHTS)
    assert {tensor.dtype for tensor in saved.values()} == {BF16}
    prove_adapter(trainee, folder, make_row(3, [9, 8]), updates=3, start={})
    assert {p.dtype for p in trainee.parameters.values()} == {BF16}


def test_evaluation_loads_it_in_fp32_with_the_same_values(
    make_trainee: MakeTrainee, make_base: Callable[..., Any], tmp_path: Path
) -> None:
    from peft import get_peft_model_state_dict

    from hashtune.evaluation.models import attach

    trainee = make_trainee(**WITHOUT)
    write_adapter(trainee.peft, tmp_path / "a", base_name="b", revision="1")
    model = attach(make_base(), tmp_path / "a")
    loaded = get_peft_model_state_dict(model, save_embedding_layers=False)
    for name, tensor in load_file(tmp_path / "a" / WEIGHTS).items():
        assert loaded[name].dtype == FP32
        assert torch.equal(loaded[name], tensor.float())


def test_it_begins_with_the_fresh_adapter_or_the_pinned_one_rounded(
    make_trainee: MakeTrainee, tmp_path: Path
) -> None:
    fp32, rounded = make_trainee(precision="bf16"), make_trainee(**WITHOUT)
    for name, parameter in rounded.parameters.items():
        assert torch.equal(parameter, fp32.parameters[name].to(BF16))
    with torch.no_grad():
        for parameter in fp32.parameters.values():
            parameter.add_(0.0501)
    write_adapter(fp32.peft, tmp_path / "a", base_name="b", revision="1")
    pinned = load_file(tmp_path / "a" / WEIGHTS)
    start = continue_from(rounded.peft, pinned)
    assert {tensor.dtype for tensor in start.values()} == {BF16}
    for name, parameter in rounded.parameters.items():
        assert torch.equal(parameter, fp32.parameters[name].to(BF16))
    moved = {name: tensor + 1 for name, tensor in start.items()}
    check_moved(moved, start)  # compares values of one type


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_virtual_tokens_are_bf16_too(
    kind: str, make_soft: Callable[..., Trainee], make_loop: MakeLoop, plan: Plan
) -> None:
    rows = [replace(r, example_ids=["x"], lengths=[sum(r.lengths)]) for r in plan.rows]
    evals = [replace(r, example_ids=["x"], lengths=[sum(r.lengths)]) for r in plan.eval_rows]
    trainee = make_soft(kind, **WITHOUT)
    loop = make_loop("a", trainee=trainee, the_plan=Plan(rows, plan.steps, evals))
    before = values(loop)
    loop.run()
    assert {p.dtype for p in trainee.parameters.values()} == {BF16}
    assert not torch.equal(before[0], values(loop)[0])


def test_routes(make_trainee: MakeTrainee) -> None:
    assert make_trainee(**WITHOUT).route == (
        "bf16 adapter without master weights, bf16 base, bf16 autocast"
    )
    assert make_trainee(precision="bf16").route == "fp32 adapter, bf16 base, bf16 autocast"
    tf32 = make_trainee(precision="tf32")
    assert tf32.route == "fp32 adapter, fp32 base, TF32 products"
    assert {p.dtype for p in tf32.peft.parameters()} == {FP32}
    with tf32.autocast():
        assert not torch.is_autocast_enabled("cpu")
