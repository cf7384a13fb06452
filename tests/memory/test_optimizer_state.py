"""State bytes of each optimizer: by hand, and counted in the real one after an update."""

from typing import get_args

import pytest
import torch
from torch import nn

from hashtune.memory.optimizer_state import optimizer_bytes
from hashtune.spec.schema import Optim, OptimizerName
from hashtune.spec.training import CUDA_ONLY
from hashtune.training.optimizers import build_optimizer

MATRICES = [(16, 300, 2), (70, 16, 1)]  # 4,800 elements twice, 1,120 once
VECTORS = [(300, 2), (5_120, 1)]  # 5,720 elements


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adamw", 8 * 10_720),
        ("paged_adamw_32bit", 8 * 10_720),
        ("sgd", 4 * 10_720),
        ("lion", 4 * 10_720),
        ("muon", 4 * 10_720),
        ("adafactor", 4 * (2 * 316 + 86)),
        # 4,800 = 18.75 blocks: 2 * (4,800 + 19 * 4) each; 1,120 stay fp32; two maps of 256 floats
        ("adamw_8bit", 2 * 2 * 4_876 + 8 * 1_120 + 2_048),
    ],
)
def test_by_hand(name: OptimizerName, expected: int) -> None:
    assert optimizer_bytes(name, MATRICES) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adamw", 8 * 5_720),
        ("sgd", 4 * 5_720),
        ("muon", 8 * 5_720),  # AdamW's, beside it
        ("adafactor", 4 * 5_720),  # nothing to factor
        # 5,120 = 20 blocks: 2 * (5,120 + 20 * 4); 300 stay fp32; the maps
        ("adamw_8bit", 2 * 5_200 + 8 * 600 + 2_048),
    ],
)
def test_vectors_by_hand(name: OptimizerName, expected: int) -> None:
    assert optimizer_bytes(name, [], VECTORS) == expected


def test_the_references_adafactor() -> None:
    """One 4,096 x 14,336 matrix: 73.7 KB where AdamW keeps 470 MB."""
    assert round(optimizer_bytes("adafactor", [(4096, 14336, 1)]) / 1e3, 1) == 73.7
    assert round(optimizer_bytes("adamw", [(4096, 14336, 1)]) / 1e6) == 470


def test_small_tensors_alone_need_no_code_map() -> None:
    assert optimizer_bytes("adamw_8bit", [(16, 16, 3)]) == optimizer_bytes("adamw", [(16, 16, 3)])


def real_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all state tensors but counters and scalars; a shared one once."""
    tensors = {
        value.data_ptr(): value.numel() * value.element_size()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    return sum(tensors.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adamw", 4 * 10_720),
        ("adamw_fused", 4 * 10_720),
        ("paged_adamw_32bit", 8 * 10_720),  # bitsandbytes' are fp32 and codes whatever is trained
        ("lion", 4 * 10_720),
        ("adamw_8bit", 2 * 2 * 4_876 + 8 * 1_120 + 2_048),
        ("adafactor", 4 * (2 * 316 + 86)),
        ("sgd", 2 * 10_720),
        ("muon", 2 * 10_720),
    ],
)
def test_of_bf16_parameters_by_hand(name: OptimizerName, expected: int) -> None:
    assert optimizer_bytes(name, MATRICES, element=2) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n in get_args(OptimizerName) if n not in CUDA_ONLY])
def test_as_in_the_real_optimizer(name: OptimizerName, dtype: torch.dtype) -> None:
    optim = Optim(
        name=name,
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        eps=1e-8,
        weight_decay=0.0,
        grad_clip=1.0,
        neftune_alpha=None,
        master_weights=True,
    )
    shapes: list[tuple[int, ...]] = [
        (rows, columns) for rows, columns, count in MATRICES for _ in range(count)
    ]
    shapes += [(length,) for length, count in VECTORS for _ in range(count)]
    params = {
        str(i): nn.Parameter(torch.ones(shape, dtype=dtype)) for i, shape in enumerate(shapes)
    }
    optimizer = build_optimizer(params, optim)
    for parameter in params.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    expected = optimizer_bytes(name, MATRICES, VECTORS, element=dtype.itemsize)
    assert real_bytes(optimizer) == expected


def test_sgd_without_momentum_keeps_nothing() -> None:
    """As torch's own (tests/training/test_optimizers.py); the others' state is not beta1's."""
    assert optimizer_bytes("sgd", MATRICES, VECTORS, momentum=False) == 0
    assert optimizer_bytes("lion", MATRICES, momentum=False) == optimizer_bytes("lion", MATRICES)
