"""Optimizers over the trainable parameters; weight decay spares vectors (biases, norms).

    adamw             torch.optim.AdamW, a loop over the tensors: the default, on a CPU
    adamw_fused       the same in one kernel: faster, other bits
    adamw_8bit        bitsandbytes: both moments as 8-bit codes in blocks of 256
    paged_adamw_*     bitsandbytes: state in CUDA's unified memory; refused on a CPU
    adafactor         transformers: row and column second moments, our learning rate
    lion              bitsandbytes: sign of an interpolated momentum
    muon              torch.optim.Muon for matrices, AdamW for the rest
    sgd               torch.optim.SGD; beta1 is the momentum

Each gives the same bits again, also after a resume; tests/training/test_optimizers.py holds them
against their formulas.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hashtune.errors import InputError
from hashtune.spec.schema import Optim
from hashtune.spec.training import CUDA_ONLY, cuda_only

Group = dict[str, Any]
Groups = Sequence[Group]
# Adafactor as its paper sets it (Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 and 5)
DECAY_RATE = -0.8
CLIP_THRESHOLD = 1.0
NOT_FOR_MUON = ("embed", "lm_head")  # matrices that are tables: AdamW's, as torch.optim.Muon says
CODE_MAPS = ("qmap1", "qmap2")  # bitsandbytes: one tensor for all parameters


def build_optimizer(parameters: Mapping[str, nn.Parameter], optim: Optim) -> torch.optim.Optimizer:
    """The optimizer named in the spec.

    Args:
        parameters: name to trainable parameter; the order fixes the order of updates.
        optim: lr here is the peak; the loop sets each group's lr before each update.

    Raises:
        InputError: the optimizer needs CUDA and a parameter is on the CPU.
    """
    on_cpu = any(parameter.device.type == "cpu" for parameter in parameters.values())
    if optim.name in CUDA_ONLY and on_cpu:
        raise InputError(cuda_only(optim))
    if optim.name == "muon":
        return _muon(parameters, optim)
    return BUILDERS[optim.name](decay_groups(parameters, optim.weight_decay), optim)


def decay_groups(parameters: Mapping[str, nn.Parameter], weight_decay: float) -> list[Group]:
    """Matrices with weight decay, vectors without; no empty group."""
    matrices = [p for p in parameters.values() if p.ndim >= 2]
    vectors = [p for p in parameters.values() if p.ndim < 2]
    return [
        {"params": group, "weight_decay": decay}
        for group, decay in ((matrices, weight_decay), (vectors, 0.0))
        if group
    ]


def _adamw(groups: Groups, optim: Optim) -> torch.optim.Optimizer:
    fused = True if optim.name == "adamw_fused" else None  # None: torch's own choice
    return torch.optim.AdamW(
        groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=fused
    )


def _bitsandbytes_adamw(groups: Groups, optim: Optim) -> torch.optim.Optimizer:
    import bitsandbytes

    return bitsandbytes.optim.AdamW(
        groups,
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        optim_bits=8 if optim.name.endswith("8bit") else 32,
        is_paged=optim.name.startswith("paged"),
    )


def _adafactor(groups: Groups, optim: Optim) -> torch.optim.Optimizer:
    """Of transformers: torch's own scales each step by the parameter's size, and lora_B is 0."""
    from transformers.optimization import Adafactor

    return Adafactor(
        groups,
        lr=optim.lr,
        eps=(optim.eps, 0.0),  # the second belongs to scale_parameter
        clip_threshold=CLIP_THRESHOLD,
        decay_rate=DECAY_RATE,
        scale_parameter=False,
        relative_step=False,
        warmup_init=False,
    )


def _lion(groups: Groups, optim: Optim) -> torch.optim.Optimizer:
    import bitsandbytes

    return bitsandbytes.optim.Lion(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2))


def _sgd(groups: Groups, optim: Optim) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=optim.lr, momentum=optim.beta1)


BUILDERS: dict[str, Callable[[Groups, Optim], torch.optim.Optimizer]] = {
    "adamw": _adamw,
    "adamw_fused": _adamw,
    "adamw_8bit": _bitsandbytes_adamw,
    "paged_adamw_8bit": _bitsandbytes_adamw,
    "paged_adamw_32bit": _bitsandbytes_adamw,
    "adafactor": _adafactor,
    "lion": _lion,
    "sgd": _sgd,
}


def _muon(parameters: Mapping[str, nn.Parameter], optim: Optim) -> torch.optim.Optimizer:
    matrices = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.ndim == 2 and not any(word in name for word in NOT_FOR_MUON)
    }
    rest = {name: p for name, p in parameters.items() if name not in matrices}
    decay = optim.weight_decay
    return MuonAndAdamW(decay_groups(matrices, decay), decay_groups(rest, decay), optim)


class MuonAndAdamW(torch.optim.Optimizer):  # type: ignore[misc]  # torch is Any to mypy here
    """Muon and AdamW as one optimizer, with groups and state in common.

    Muon's updates are scaled to the size of AdamW's, 0.2 * sqrt(max(rows, columns)) (Liu et al.
    2025, arXiv 2502.16982, section 2.2), so both take one learning rate.
    """

    def __init__(self, matrices: Groups, rest: Groups, optim: Optim) -> None:
        super().__init__([*matrices, *rest], {"lr": optim.lr})
        ours, theirs = self.param_groups[: len(matrices)], self.param_groups[len(matrices) :]
        self.parts: list[torch.optim.Optimizer] = []
        if ours:
            self.parts.append(
                torch.optim.Muon(
                    ours, lr=optim.lr, momentum=optim.beta1, adjust_lr_fn="match_rms_adamw"
                )
            )
        if theirs:
            self.parts.append(_adamw(theirs, optim))
        for part in self.parts:
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Update the matrices, then the rest."""
        assert closure is None
        for part in self.parts:
            part.step()


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Every state tensor of the optimizer as "<slot>.<parameter name>"; a Python number as int64.

    What several parameters share is copied: safetensors stores no memory twice.
    """
    tensors = {}
    for name, parameter in parameters.items():
        for slot, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensor = torch.as_tensor(value)
                tensors[f"{slot}.{name}"] = tensor.clone() if slot in CODE_MAPS else tensor
    return tensors


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Put saved state tensors back, on each parameter's device.

    Raises KeyError when a tensor belongs to a parameter that is not trained here.
    """
    for key, value in tensors.items():
        slot, _, name = key.partition(".")
        parameter = parameters[name]
        optimizer.state[parameter][slot] = _restored(slot, value, parameter, optimizer)


def _restored(
    slot: str, value: Tensor, parameter: nn.Parameter, optimizer: torch.optim.Optimizer
) -> Tensor | int:
    if slot == "step" and not value.is_floating_point():
        return int(value)  # as bitsandbytes and transformers keep it
    host = slot == "step" and not optimizer.defaults.get("fused")
    return value.to("cpu" if host else parameter.device).clone()
