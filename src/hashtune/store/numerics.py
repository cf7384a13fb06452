"""How this process multiplies fp32 matrices: exactly, or on CUDA with factors rounded to TF32.

Set before a base is loaded, for training as the spec says and for evaluation always to "ieee", so
that neither torch's defaults (cuDNN's convolutions are TF32), nor code that ran before, nor
TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, which torch reads on import, decides a bit. What NVIDIA's
libraries read themselves cannot be forced from here: NVIDIA_TF32_OVERRIDE is refused where it
could contradict. So are the variables by which the libraries of a CPU choose other kernels or fewer
threads than the spec says: no stage reads them, and each gives other last digits (docs/log.md).
"""

import os
from collections.abc import Mapping
from typing import Literal

from hashtune.errors import Finding, InputError

Products = Literal["ieee", "tf32"]  # torch's own names
OVERRIDE = "NVIDIA_TF32_OVERRIDE"
NEVER_TF32 = "0"  # the one value that NVIDIA defines: its libraries never use TF32
ON_THE_CPU = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)  # read in C by torch, oneDNN, MKL and OpenMP, where no audit hook sees it


def set_fp32_products(products: Products) -> None:
    """Set how every backend of torch multiplies fp32, for the whole process.

    Raises:
        InputError: NVIDIA_TF32_OVERRIDE is set, there is CUDA, and the two may contradict; or a
            variable of ON_THE_CPU is set.
    """
    import torch

    if found := other_kernels(os.environ):
        raise InputError(found)
    if torch.cuda.is_available() and (found := overridden(products, os.environ)):
        raise InputError(found)
    torch.backends.fp32_precision = "ieee"  # what a backend without a setting of its own takes
    # the older settings too: torch refuses to tell either when the two kinds differ
    torch.set_float32_matmul_precision("high" if products == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = products == "tf32"
    cudnn = torch.backends.cudnn
    for backend in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = products


def overridden(products: Products, environment: Mapping[str, str]) -> list[Finding]:
    """The finding for a variable by which cuBLAS and cuDNN would do otherwise."""
    value = environment.get(OVERRIDE)
    if value is None or (value == NEVER_TF32 and products == "ieee"):
        return []
    message = f"{OVERRIDE}={value} overrides in NVIDIA's libraries what the spec says of fp32"
    fix = f"unset {OVERRIDE}"
    return [Finding("environment", message, field="precision", fix=fix)]


def other_kernels(environment: Mapping[str, str]) -> list[Finding]:
    """A finding for each variable that changes the bits and is in no spec."""
    return [
        Finding(
            "environment",
            f"{name}={environment[name]} makes the CPU's libraries compute other last digits, and "
            "no spec says so",
            field="determinism",
            fix=f"unset {name}",
        )
        for name in ON_THE_CPU
        if name in environment
    ]
