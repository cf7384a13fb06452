"""Births and deaths of storages: sequences whose bytes are worked out by hand."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hashtune.memory.rehearsal.live import Stage, follow

HERE = Path(__file__).name
FAKE = pytest.mark.parametrize("fake", [True, False])


@FAKE
def test_a_storage_counts_until_its_last_reference_dies(fake: bool) -> None:
    def step(stage: Stage) -> None:
        first = torch.zeros(100)  # 400 bytes
        stage.phase("forward")
        second = first.view(10, 10) * 2.0  # 800 with it; the view is the same storage
        third = second + 1.0  # 1200
        del first, second
        stage.phase("loss")
        fourth = third.to(torch.float64)  # 400 + 800
        del third, fourth

    found = follow(step, fake=fake)
    assert (found.peak, found.peak_phase) == (1200, "forward")
    assert {name: (phase.peak, phase.end) for name, phase in found.phases.items()} == {
        "load": (400, 400),
        "forward": (1200, 400),
        "loss": (1200, 0),
    }
    assert (found.rounded, found.reserved) == (512 + 512 + 512, 2 << 20)


@FAKE
def test_what_lies_there_at_the_peak_has_its_line(fake: bool) -> None:
    def step(stage: Stage) -> None:
        kept = torch.zeros(100, dtype=torch.float64)
        brief = kept + 1.0
        del brief
        large = torch.ones(1000)
        del large, kept

    found = follow(step, fake=fake)
    first = step.__code__.co_firstlineno
    assert [(birth.size, birth.shape, birth.dtype, birth.line) for birth in found.largest] == [
        (4000, (1000,), "float32", f"{HERE}:{first + 4} step"),
        (800, (100,), "float64", f"{HERE}:{first + 1} step"),
    ]


class Twice(nn.Module):
    """Two products, the second of them in another module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The sine of a product."""
        product: Tensor = self.inner(x)
        return product.sin()


@FAKE
def test_a_tensor_of_the_backward_has_the_line_of_its_forward(fake: bool) -> None:
    """sin's backward takes the product that it kept: its own result is d cos(product)."""
    held = []

    def step(stage: Stage) -> None:
        model = Twice()
        stage.name(model)
        stage.phase("forward")
        result = model(torch.ones(4, 8)).sum()
        stage.phase("backward")
        result.backward()
        held.append(model.inner.weight.grad)

    found = follow(step, fake=fake)
    line = Twice.forward.__code__.co_firstlineno + 3
    births = found.events.births
    backward = {(birth.line, birth.module) for birth in births if birth.line.startswith("back")}
    assert (f"backward of {HERE}:{line} forward", "") in backward
    (gradient,) = [
        b for b in births if b.shape == (8, 8) and b.module == "inner" and "of" in b.line
    ]
    assert gradient.line == f"backward of {HERE}:{line - 1} forward"
    weight = next(birth for birth in births if birth.shape == (8, 8))
    assert (weight.size, weight.module) == (256, "inner")


def test_fake_steps_know_the_shapes_that_hang_on_labels() -> None:
    """Two of five labels are trained: a choice of two rows, 2 * 4 floats."""

    def step(_: Stage) -> None:
        labels = torch.tensor([[-100, 3, -100, 4, -100]])
        states = torch.zeros(1, 5, 4)
        chosen = states[labels != -100]
        assert chosen.shape == (2, 4)
        assert float(chosen.sum()) == 1.0  # nobody knows; finite
        assert bool((chosen > 0).any())

    found = follow(step, fake=True)
    assert next(birth.size for birth in found.events.births if birth.shape == (2, 4)) == 32
    assert found.assumed == ()


def test_a_choice_by_computed_values_is_named() -> None:
    def step(_: Stage) -> None:
        values = torch.zeros(6)
        assert values[values > 0].shape == (6,)

    assert follow(step, fake=True).assumed == ("a choice by computed values takes every row",)


def test_nothing_fake_is_left_behind() -> None:
    """A real step in the same process works after a rehearsal."""
    from hashtune.training.fused.attention import CausalAttention

    def step(_: Stage) -> None:
        query = torch.zeros(1, 2, 130, 8)
        CausalAttention.apply(query, query, query, 1.0)

    follow(step, fake=True)
    query = torch.zeros(1, 2, 130, 8)
    assert type(CausalAttention.apply(query, query, query, 1.0)) is Tensor
    module = nn.Linear(3, 3)
    weight = module.weight
    assert module.to(torch.float64).weight is weight
