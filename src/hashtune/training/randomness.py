"""The states of every random generator a step may draw from, as JSON values and tensors."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def torch_states() -> dict[str, Tensor]:
    """torch's generators: "rng.torch", and "rng.cuda.<device>" where this process uses CUDA: a run
    on a CPU has the same states on a machine with GPUs."""
    states = {"rng.torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states[f"rng.cuda.{torch.cuda.current_device()}"] = torch.cuda.get_rng_state()
    return states


def python_and_numpy_states() -> dict[str, Any]:
    """Python's and NumPy's generators, as values that JSON keeps exactly."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, [int(key) for key in keys], position, has_gauss, cached],
    }


def restore_rng(states: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Put the states of Python, NumPy (`states`) and torch (`tensors`) back."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(tensors["rng.torch"])
    for name, tensor in tensors.items():
        if name.startswith("rng.cuda."):
            torch.cuda.set_rng_state(tensor, int(name.rsplit(".", 1)[1]))
