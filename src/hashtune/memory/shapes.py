"""Exact parameter counts of a decoder from its config.json alone.

A model type of families.py takes microseconds and neither torch nor weights. Any other is read off
the model that transformers builds on the meta device (inventory.py), which takes seconds. Both ways
are held against each other, one family at a time (tests/memory/test_families.py).
"""

from collections.abc import Mapping
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.memory.adapters import (
    adapted_modules,
    lora_matrices,
    lora_parameters,
    magnitude_vectors,
    match_targets,
    prompt_matrix,
)
from hashtune.memory.families import FAMILIES
from hashtune.memory.family_shapes import common_names, family_shape
from hashtune.memory.layout import Bare, Experts, Linear, Norm, Shape

__all__ = [
    "FAMILIES",
    "Bare",
    "Experts",
    "Linear",
    "Norm",
    "Shape",
    "adapted_modules",
    "lora_matrices",
    "lora_parameters",
    "magnitude_vectors",
    "match_targets",
    "prompt_matrix",
    "read_shape",
]

CONFIG_FILE = "config.json"
NEEDED = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "vocab_size"),
)


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a Hugging Face config.json describes.

    Raises:
        InputError: a field is missing, or neither this version nor transformers knows the model
            type.
    """
    if config.get("model_type") and config["model_type"] not in FAMILIES:
        from hashtune.memory.inventory import inventory  # torch and transformers

        return inventory(config)
    known = common_names(config)
    missing = [
        Finding("config-field", "is missing", file=CONFIG_FILE, field=key)
        for key in ("model_type", *NEEDED)
        if not known.get(key)
    ]
    if missing:
        raise InputError(missing)
    return family_shape(known)
