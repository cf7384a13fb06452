"""What a training run is: all that decides its bits. Its hash names the folder of its state."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.spec.schema import Spec

SECTIONS = {
    "init_adapter": "base_model",
    "added_tokens": "tokenizer",
    "branch": "schedule",
    **dict.fromkeys(("micro", "attention", "layout"), "batch"),
    **dict.fromkeys(
        ("select", "eval_every_steps", "early_stop_patience", "max_skipped_steps", "samples"),
        "checkpoint",
    ),
    "keep_stable": "checkpoint",
}


def identity_parts(spec: Spec, inputs: Sequence[Path]) -> dict[str, Any]:
    """Everything that decides the adapter's bits; not how often checkpoints are written.

    Args:
        spec: the sections that train reads.
        inputs: train's input files, counted by name and content.
    """
    return {
        "inputs": {path.as_posix(): writers.sha256_file(path) for path in inputs},
        "init_adapter": init_sha256(spec),
        "method": spec.method.model_dump(),
        "quantization": spec.quantization.model_dump(),
        "optim": spec.optim.model_dump(),
        "schedule": spec.schedule.model_dump(exclude={"branch_from"}),
        "branch": branch_sha256(spec),
        "micro": spec.batch.micro,
        "attention": spec.batch.attention,
        "layout": spec.batch.layout,
        "activations": spec.activations.model_dump(),
        "precision": spec.precision,
        "device": spec.device,
        "kernels": spec.kernels,
        "added_tokens": spec.tokenizer.added_tokens,
        "seed": spec.seed,
        "init_seed": spec.init_seed,
        "determinism": spec.determinism.model_dump(),
        "select": spec.checkpoint.select,
        "eval_every_steps": spec.checkpoint.eval_every_steps,
        "early_stop_patience": spec.checkpoint.early_stop_patience,
        "max_skipped_steps": spec.checkpoint.max_skipped_steps,
        "samples": spec.checkpoint.samples,
        "keep_stable": spec.checkpoint.keep_stable,
    }


def init_sha256(spec: Spec) -> str | None:
    """Of the adapter to continue from, if there is one."""
    pin = spec.base_model.init_adapter
    return pin.sha256 if pin else None


def branch_sha256(spec: Spec) -> str | None:
    """Of the kept state to begin with, if there is one."""
    pin = spec.schedule.branch_from
    return pin.sha256 if pin else None


def field_values(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted field of the spec to value, from identity_parts; a file has its path for a name."""
    found: dict[str, Any] = {}
    for name, value in parts.items():
        if name == "inputs":
            found |= value
        elif isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[f"{SECTIONS[name]}.{name}" if name in SECTIONS else name] = value
    return found
