"""Every tensor of a step follows the model to its device.

torch's meta device stands in for a GPU: it has shapes and no values, and refuses to mix with the
CPU. What needs values (the loss over trained tokens, the probes) is for a GPU (test_device.py).
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hashtune.records import Row
from hashtune.spec.schema import Attention, Layout, Method, Optim
from hashtune.training.documents import attend_as
from hashtune.training.layouts import batch_of
from hashtune.training.model import Trainee, build_trainee
from hashtune.training.noise import Noise, on_embeddings
from hashtune.training.optimizers import build_optimizer, restore_optimizer

LORA = Method(
    type="lora",
    variant="lora",
    r=2,
    alpha=4.0,
    dropout=0.1,
    targets="all-linear",
    virtual_tokens=None,
)
NONE: dict[str, Any] = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets"))
PREFIX = Method(type="prefix", **NONE, virtual_tokens=3)
PACKED, SINGLE = [[5, 4], [7]], [[7], [4]]


@pytest.fixture
def on_meta(make_base: Callable[..., Any]) -> Callable[..., Trainee]:
    def make(method: Method, attention: Attention = "mask") -> Trainee:
        base = make_base().to("meta")
        attend_as(base, attention, [])
        return build_trainee(base, method, precision="fp32", seed=0)

    return make


def step(trainee: Trainee, rows: list[Row], layout: Layout = "rows") -> set[str]:
    """Forward and backward with noise; the devices of the gradients."""
    with on_embeddings(trainee, rows, Noise(5.0, seed=1, step=1)):
        hidden = trainee.hidden(batch_of(rows, layout))
    trainee.head(hidden[:, -1]).sum().backward()
    return {p.grad.device.type for p in trainee.parameters.values() if p.grad is not None}


@pytest.mark.parametrize(
    ("method", "attention", "layout"),
    [
        (LORA, "mask", "rows"),
        (LORA, "documents", "rows"),
        (LORA, "documents", "padding_free"),
        (PREFIX, "mask", "rows"),
    ],
)
def test_inputs_masks_and_noise_follow_the_model(
    method: Method,
    attention: Attention,
    layout: Layout,
    on_meta: Callable[..., Trainee],
    make_row: Callable[[int, list[int]], Row],
) -> None:
    lengths = PACKED if method is LORA else SINGLE
    rows = [make_row(n, each) for n, each in enumerate(lengths)]
    trainee = on_meta(method, attention)
    assert trainee.device.type == "meta"
    assert step(trainee, rows, layout) == {"meta"}


def test_inputs_left_on_the_cpu_are_seen(
    on_meta: Callable[..., Trainee],
    make_row: Callable[[int, list[int]], Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: nothing is moved."""
    trainee = on_meta(LORA)
    monkeypatch.setattr(Trainee, "device", torch.device("cpu"))
    with pytest.raises(RuntimeError, match="meta"):
        step(trainee, [make_row(n, each) for n, each in enumerate(PACKED)])


def test_noise_left_on_the_cpu_is_seen(
    on_meta: Callable[..., Trainee],
    make_row: Callable[[int, list[int]], Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: Tensor.to moves nothing while the noise is added."""
    trainee, row = on_meta(LORA), make_row(0, [7])
    embed = trainee.peft.get_base_model().get_input_embeddings()
    ids = batch_of([row]).input_ids.to("meta")
    with on_embeddings(trainee, [row], Noise(5.0, seed=1, step=1)):
        assert embed(ids).device.type == "meta"
        monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
        with pytest.raises(RuntimeError, match="meta"):
            embed(ids)


def test_a_restored_state_lies_with_its_parameter(
    on_meta: Callable[..., Trainee], make_optim: Callable[..., Optim]
) -> None:
    """torch's AdamW counts its updates on the CPU."""
    trainee = on_meta(LORA)
    (key, parameter), *_ = trainee.parameters.items()
    kept = {f"exp_avg.{key}": torch.zeros(parameter.shape), f"step.{key}": torch.tensor(3.0)}
    optimizer = build_optimizer(trainee.parameters, make_optim())
    restore_optimizer(optimizer, trainee.parameters, kept)
    state = optimizer.state[parameter]
    assert state["exp_avg"].device.type == "meta"
    assert state["step"].device.type == "cpu"
