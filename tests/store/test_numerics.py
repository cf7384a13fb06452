"""fp32 products: set on every backend whatever was there, told by torch, refused where overridden.

That TF32 is what a GPU then computes needs a GPU; here the settings are read back from torch.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hashtune.errors import InputError
from hashtune.store.numerics import (
    ON_THE_CPU,
    OVERRIDE,
    other_kernels,
    overridden,
    set_fp32_products,
)

OPERATIONS = [("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")]
CPU = [("mkldnn", "conv"), ("mkldnn", "rnn")]


def now() -> dict[tuple[str, str], str]:
    """What each operation resolves to."""
    return {pair: torch._C._get_fp32_precision_getter(*pair) for pair in [*OPERATIONS, *CPU]}


def told() -> tuple[Any, ...]:
    """By the older settings; torch raises here when the two kinds contradict each other."""
    cuda, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return cuda, cudnn, torch.get_float32_matmul_precision()


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    set_fp32_products("ieee")


def everything_reduced() -> None:
    torch.backends.fp32_precision = "tf32"
    set_fp32_products("tf32")
    torch.backends.mkldnn.conv.fp32_precision = "none"


PLANTED = {
    "nothing": lambda: None,
    "the old way": lambda: torch.set_float32_matmul_precision("medium"),
    "transformers' way": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "the new way": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "cudnn": lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    "everything": everything_reduced,
}


@pytest.mark.parametrize("before", PLANTED)
def test_ieee_is_set_everywhere_whatever_was_there(before: str) -> None:
    PLANTED[before]()
    set_fp32_products("ieee")
    assert set(now().values()) == {"ieee"}
    assert told() == (False, False, "highest")
    assert torch._C._get_fp32_precision_getter("mkldnn", "matmul") == "ieee"


@pytest.mark.parametrize("before", PLANTED)
def test_tf32_is_set_for_cuda_alone(before: str) -> None:
    PLANTED[before]()
    set_fp32_products("tf32")
    wanted = {pair: "tf32" if pair[0] == "cuda" else "ieee" for pair in [*OPERATIONS, *CPU]}
    assert now() == wanted
    assert told() == (True, True, "high")


def test_planted_fault_one_setting_forgotten_shows() -> None:
    set_fp32_products("ieee")
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    assert set(now().values()) == {"ieee", "tf32"}
    with pytest.raises(RuntimeError, match="cuDNN"):
        told()


def test_the_environment_that_torch_reads_on_import_decides_nothing() -> None:
    code = (
        "import torch; from hashtune.store.numerics import set_fp32_products as set_\n"
        "print(torch.backends.cuda.matmul.allow_tf32)\n"
        "set_('ieee'); print(torch.backends.cuda.matmul.allow_tf32)"
    )
    environment = os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "False"]  # the first: the plant took


@pytest.mark.parametrize(
    ("products", "value", "refused"),
    [
        ("ieee", None, False),
        ("tf32", None, False),
        ("ieee", "0", False),  # what the spec says too
        ("tf32", "0", True),
        ("ieee", "1", True),
        ("tf32", "1", True),  # NVIDIA defines no other value than 0
        ("ieee", "", True),
    ],
)
def test_what_nvidia_s_libraries_read_themselves_is_refused(
    products: Any, value: str | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = overridden(products, {} if value is None else {OVERRIDE: value})
    assert len(findings) == refused
    if value is not None:
        monkeypatch.setenv(OVERRIDE, value)
    set_fp32_products(products)  # without CUDA nobody reads it
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    if not refused:
        set_fp32_products(products)
        return
    with pytest.raises(InputError, match=f"fix: unset {OVERRIDE}") as caught:
        set_fp32_products(products)
    assert [(f.rule, f.field) for f in caught.value.findings] == [("environment", "precision")]
    monkeypatch.undo()


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_what_the_cpu_s_libraries_read_themselves_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_kernels({"OMP_NUM_THREADS": "1", "PATH": "x"}) == []  # set_num_threads overrides
    monkeypatch.setenv(name, "1")
    with pytest.raises(InputError, match=f"fix: unset {name}") as caught:
        set_fp32_products("ieee")
    assert [(f.rule, f.field) for f in caught.value.findings] == [("environment", "determinism")]
    monkeypatch.undo()


def test_planted_fault_such_a_variable_does_change_the_bits() -> None:
    """Why they are refused: without it nobody would know what gave the other digits."""
    code = (
        "import torch, hashlib\n"
        "torch.set_num_threads(1)\n"
        "x = torch.randn(300, 576, generator=torch.Generator().manual_seed(1))\n"
        "print(hashlib.sha256(torch.softmax(x.exp(), -1).sum(0).numpy().tobytes()).hexdigest())\n"
    )
    command, seen = [sys.executable, "-c", code], set()
    for variables in ({}, {"OMP_NUM_THREADS": "2"}, {"ATEN_CPU_CAPABILITY": "default"}):
        environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | variables
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seen.add(run.stdout)
    assert len(seen) == 2  # the number of threads is the spec's, the kernels are not
