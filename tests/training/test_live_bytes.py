"""The meter on a CPU: worked sums, and nothing left behind."""

import torch
from torch import nn

from hashtune.training.live_bytes import OnCpu, meter_of


def test_a_storage_counts_once_and_until_it_dies() -> None:
    weight = torch.zeros(250)  # 1,000 bytes
    with OnCpu([weight, weight.view(10, 25)]) as meter:
        assert meter.now == 1000
        one = torch.zeros(100)  # 400
        view = one.view(10, 10)  # the same memory
        assert meter.now == 1400
        del one
        assert meter.now == 1400
        two = view + 1  # 400
        assert (meter.now, meter.peak) == (1800, 1800)
        del view, two
        assert (meter.now, meter.peak) == (1000, 1800)
        meter.restart()
        assert meter.peak == 1000
        weight += 1
        assert meter.peak == 1000
    assert meter.reserved is None


def test_a_resized_storage_has_its_new_size() -> None:
    with OnCpu([]) as meter:
        one = torch.zeros(100)
        one.resize_(300)
        assert meter.now == 1200
        del one
        assert meter.now == 0


def test_what_autograd_keeps_counts() -> None:
    """exp keeps its result, which has no other name: 400 bytes, until the backward is done."""
    with OnCpu([]) as meter:
        leaf = nn.Parameter(torch.zeros(100))
        total = leaf.exp().sum()
        assert meter.now == 400 + 400 + 4
        total.backward()
        assert leaf.grad is not None
        assert meter.now == 400 + 4 + 400  # the leaf, the sum, the gradient
        del total, leaf
        assert meter.now == 0


def test_on_a_cpu_bytes_are_counted() -> None:
    assert isinstance(meter_of(torch.device("cpu"), []), OnCpu)
