"""Full fine-tuning: a base whose own weights are trained, and the files they lie in.

    model.safetensors   every parameter by its name in the base, fp32; a tied head is its embedding
                        and is there once
    full.json           the base (name, revision) that the weights are laid over, and their rows

The weights are written in fp32, as they are trained: most steps of a usual learning rate are
smaller than half a bf16 step of the weight they change, so a bf16 file would hold another model
than the one that was measured. Who evaluates in bf16 rounds them on loading, as the base's own.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hashtune.errors import Finding, InputError
from hashtune.spec.methods import FULL_FILES

WEIGHTS, CONFIG = FULL_FILES
SAMPLES = 3
Again = Callable[[], Any]


class FullModel:
    """A base with weights of its own, asked and called as PEFT's models are.

    `again` loads the pinned base once more: `disable_adapter` and the proof of a trained model
    compare with it, and nobody else pays for a second copy.
    """

    active_peft_config = SimpleNamespace(is_prompt_learning=False)

    def __init__(self, base: Any, again: Again) -> None:
        self.base = base
        self.config = base.config
        self._again = again
        self._pinned: dict[str, Tensor] = {}

    def get_base_model(self) -> Any:
        """The model of transformers itself."""
        return self.base

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """As the model of transformers."""
        return self.base(*args, **inputs)

    @property
    def training(self) -> bool:
        """Whether dropout is on."""
        return bool(self.base.training)

    def train(self, mode: bool = True) -> Self:
        """Dropout on, or off."""
        self.base.train(mode)
        return self

    def eval(self) -> Self:
        """Dropout off."""
        return self.train(False)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All, a tied head once."""
        parameters: Iterator[nn.Parameter] = self.base.parameters()
        return parameters

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All by their names in the base, a tied head once."""
        named: Iterator[tuple[str, nn.Parameter]] = self.base.named_parameters()
        return named

    def buffers(self) -> Iterator[Tensor]:
        """What is no weight: tables of the positions."""
        buffers: Iterator[Tensor] = self.base.buffers()
        return buffers

    def tensors(self) -> dict[str, Tensor]:
        """The weights as they are now, by name."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def pinned(self) -> Mapping[str, Tensor]:
        """The weights of the pinned base, by name; loaded at the first call."""
        if not self._pinned:
            named = self._again().named_parameters()
            self._pinned = {name: parameter.detach() for name, parameter in named}
        return self._pinned

    def disable_adapter(self) -> Any:
        """The pinned base's weights meanwhile."""
        return self.holding(self.pinned())

    @contextmanager
    def holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Other weights meanwhile; they are pointed to, not copied."""
        kept = {name: parameter.data for name, parameter in self.named_parameters()}
        try:
            for name, parameter in self.named_parameters():
                parameter.data = tensors[name].to(kept[name])
            yield
        finally:
            for name, parameter in self.named_parameters():
                parameter.data = kept[name]

    def lay_over(self, folder: Path) -> None:
        """Put the weights of the folder in place of the base's, in the type of the base's.

        Raises:
            InputError: as `read_full`.
        """
        tensors = read_full(folder, self.tensors())
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])


def has_full_weights(folder: Path) -> bool:
    """Whether the folder is one that full fine-tuning left."""
    return any((folder / name).is_file() for name in FULL_FILES)


def read_full(folder: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in the folder, fp32, proven to fit.

    Args:
        folder: with model.safetensors.
        wanted: the base's weights by name; only their shapes are asked.

    Raises:
        InputError: no file or no safetensors; a name, shape or type that does not fit, a value that
            is not finite: each named.
    """
    file = folder / WEIGHTS
    if not file.is_file():
        fix = "dvc repro train"
        raise InputError(Finding("no-adapter", "does not exist", file=file.as_posix(), fix=fix))
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        message = f"is no safetensors file: {error}"
        raise InputError(Finding("adapter-broken", message, file=file.as_posix())) from error
    if findings := list(_misfits(file, tensors, wanted)):
        raise InputError(findings)
    return tensors


def _misfits(
    file: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> Iterator[Finding]:
    shared = sorted(tensors.keys() & wanted.keys())
    faults = (
        ("missing", sorted(wanted.keys() - tensors.keys())),
        ("unexpected", sorted(tensors.keys() - wanted.keys())),
        ("shape", [name for name in shared if tensors[name].shape != wanted[name].shape]),
        ("type", [name for name in shared if tensors[name].dtype != torch.float32]),
        ("values", [name for name in shared if not bool(torch.isfinite(tensors[name]).all())]),
    )
    what = {"shape": "of another shape", "type": "not in fp32", "values": "not finite"}
    for kind, names in faults:
        if names:
            yield Finding(
                f"adapter-{kind}",
                f"{len(names)} tensors {what.get(kind, kind)}: {', '.join(names[:SAMPLES])}",
                file=file.as_posix(),
                fix="the weights belong to another base, or the file is broken",
            )
