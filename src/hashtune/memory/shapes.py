"""Exact parameter counts of a decoder from its config.json alone.

A model type of families.py takes microseconds and neither torch nor weights. Any other is read off
the model that transformers builds on the meta device (inventory.py), which takes seconds. Both ways
are held against each other, one family at a time (tests/memory/test_families.py).
"""

from collections.abc import Mapping
from typing import Any

from hashtune.errors import InputError
from hashtune.memory.adapters import (
    adapted_modules,
    lora_matrices,
    lora_parameters,
    magnitude_vectors,
    match_targets,
    prompt_matrix,
)
from hashtune.memory.config_rules import config_findings
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


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a Hugging Face config.json describes.

    Raises:
        InputError: a field is missing, no count or impossible (config_rules.py), or neither this
            version nor transformers knows the model type.
    """
    if findings := config_findings(config):
        raise InputError(findings)
    if config["model_type"] not in FAMILIES:
        from hashtune.memory.inventory import inventory  # torch and transformers

        return inventory(config)
    return family_shape(common_names(config))
