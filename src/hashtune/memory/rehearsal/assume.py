"""What the rehearsal takes for granted about a device's kernels; each is named in the report.

A fake tensor says "cpu", where autograd takes other kernels than on CUDA. For CUDA these are put in
their place:

    bitsandbytes  its NF4 product unpacks the weight (backends/cuda/ops.py: above 1,536 rows), its
                  optimizers update in place; on a CPU both are Python code, which is followed
    flash         its backward sums dq in fp32 over blocks of keys (dq_accum) and keeps fp32 row
                  sums (softmax_d), and writes dk, dv for all heads where keys have fewer
                  (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd)
    foreach       torch.optim takes all tensors at once (_default_to_fused_or_foreach)

Not seen on either: what other operations take and give back inside themselves (cuBLAS has a
workspace of its own, outside of what is followed here: 32 MiB and a little on an H100).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hashtune.memory.rehearsal.follow import Kernel, Workspace
from hashtune.memory.rehearsal.quantised import no_outliers
from hashtune.spec.schema import Device

FP32 = 4
ALIGNED = 128  # queries that flash attention rounds a length up to


@dataclass(frozen=True, slots=True)
class Assumed:
    """Operations replaced by Python code, operations with a workspace, and whether torch's
    optimizers update all tensors at once; `notes` says it in words."""

    opened: Mapping[Any, Kernel]
    workspaces: Mapping[Any, Workspace]
    foreach: bool
    notes: tuple[str, ...]


def assume(device: Device, *, quantised: bool = False, fake: bool = True) -> Assumed:
    """What holds for a device. `quantised`: bitsandbytes is used, by the base or the optimizer."""
    opened = _bitsandbytes(device, fake=fake) if quantised else {}
    if device == "cpu":
        return Assumed(opened, {}, False, ())
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    notes: tuple[str, ...] = (
        "flash attention's backward sums dq in fp32 and repeats dk and dv for all heads",
        "torch's optimizers update all tensors at once",
    )
    if quantised:
        notes += ("bitsandbytes unpacks an NF4 weight for each product and updates in place",)
    return Assumed(opened, {flash: flash_backward}, True, notes)


def flash_backward(args: tuple[Any, ...]) -> int:
    """Bytes inside the backward of flash attention on CUDA: dq_accum, softmax_d, and where there
    are fewer key heads dk and dv for all heads. The arguments begin with the gradient (B, heads, T,
    d), query, key, value."""
    _, query, key, value, *_ = args
    batch, heads, length, width = query.shape
    padded = -(-length // ALIGNED) * ALIGNED
    inside = batch * heads * padded * (width + 1) * FP32
    if key.shape[1] != heads:
        for tensor in (key, value):
            inside += tensor.numel() // tensor.shape[1] * heads * tensor.element_size()
    return int(inside)


def _bitsandbytes(device: Device, *, fake: bool) -> dict[Any, Kernel]:
    import bitsandbytes as _register  # noqa: F401  its operations come with it
    from bitsandbytes.backends.cpu import ops as cpu
    from bitsandbytes.backends.default import ops as default

    own = torch.ops.bitsandbytes
    opened: dict[Any, Kernel] = {own.gemm_4bit.default: default._gemm_4bit_default_impl}
    if device == "cpu":
        opened[own.optimizer_update_32bit.default] = cpu._optimizer_update_32bit_cpu
        blockwise = own.optimizer_update_8bit_blockwise.default
        opened[blockwise] = cpu._optimizer_update_8bit_blockwise_cpu
    return opened | (no_outliers() if fake else {})
