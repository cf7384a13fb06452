"""Writing the adapter so that equal weights are equal bytes, and proving what was written."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune import writers

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def write_adapter(peft: Any, folder: Path, *, base_name: str, revision: str) -> None:
    """Write adapter_model.safetensors and adapter_config.json as PEFT reads them.

    PEFT's own config would name this machine's store path and print a set in hash order.
    """
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(peft, save_embedding_layers=False)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(state.items())}
    config = peft.peft_config["default"].to_dict()
    config |= {
        "base_model_name_or_path": base_name,
        "revision": revision,
        "inference_mode": True,
        "target_modules": sorted(config["target_modules"]),
    }
    with writers.staged_directory(folder) as staged:
        save_file(tensors, staged / WEIGHTS, metadata={"format": "pt"})
        writers.write_json(staged / CONFIG, {k: _plain(v) for k, v in config.items()})
        check_adapter(staged, tensors)  # before the rename: what fails never has the real name


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, str | int | float | bool | type(None) | list | dict):
        return value
    return str(getattr(value, "value", value))


def check_adapter(folder: Path, expected: Mapping[str, Tensor]) -> None:
    """Reopen the file: the expected names and shapes, elements, finite values.

    Raises AssertionError: a broken file here is a fault of ours, not of the input.
    """
    found = load_file(folder / WEIGHTS)
    assert found.keys() == expected.keys(), "adapter file has other names than the model"
    for name, tensor in found.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape"
        assert tensor.numel() > 0, f"{name} is empty"
        assert bool(torch.isfinite(tensor).all()), f"{name} is not finite"


def moved_share(folder: Path) -> float:
    """Share of lora_B tensors that are not zero; below 1.0 some layers were never trained."""
    norms = [
        float(tensor.float().norm())
        for name, tensor in load_file(folder / WEIGHTS).items()
        if "lora_B" in name
    ]
    return sum(norm > 0 and math.isfinite(norm) for norm in norms) / len(norms)
