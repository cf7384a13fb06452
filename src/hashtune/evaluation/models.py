"""What is evaluated: the base through its manifest, with or without an adapter, ready to answer.

Base and adapter are loaded by the same code in the same precision. An adapter whose tensors do not
all find their place would silently answer as the base does, so names are compared on loading.
"""

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from hashtune.errors import Finding, InputError
from hashtune.evaluation.generate import Stop
from hashtune.evaluation.soft_prompts import WithVirtualTokens
from hashtune.store.full_weights import FullModel, has_full_weights

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.spec.schema import TokenizerSpec
    from hashtune.store.manifest import Manifest

ADAPTER_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
SAMPLES = 3
MISMATCH = re.compile(  # torch's words, in load_state_dict
    r"size mismatch for (\S+): copying a param with shape torch\.Size\((\[[^]]*\])\)"
    r".*?torch\.Size\((\[[^]]*\])\)"
)
SOFT_TENSOR = "prompt_embeddings"  # PEFT's name for the one tensor of a prompt or prefix


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, the template that renders for it, and what ends its answers."""

    model: Any
    template: "Template"
    stop_ids: Sequence[Stop]


def open_subject(
    manifest: "Manifest",
    adapter: Path | None,
    tokenizer_spec: "TokenizerSpec",
    *,
    dtype: Literal["fp32", "bf16"],
    threads: int,
    root: Path,
) -> Subject:
    """Load tokenizer, template (files relative to `root`), the stops that training uses, model.

    Raises:
        InputError: as `load_evaluated` and the loaders of template and tokenizer.
    """
    from hashtune.store.added_tokens import rows_needed, token_ids

    template, stops = open_tokens(manifest, tokenizer_spec, root=root)
    rows = rows_needed(token_ids(template.tokenizer, tokenizer_spec.added_tokens))
    model = load_evaluated(manifest, adapter, dtype=dtype, threads=threads, rows=rows)
    return Subject(model, template, stops)


def open_tokens(
    manifest: "Manifest", tokenizer_spec: "TokenizerSpec", *, root: Path
) -> tuple["Template", Sequence[Stop]]:
    """The template with its tokenizer, and the stops that training uses.

    Raises:
        InputError: as the loaders of template and tokenizer.
    """
    from hashtune.chat.pinned import load_template
    from hashtune.chat.stops import stop_sequences
    from hashtune.store.loader import generation_eos_ids, load_tokenizer

    tokenizer = load_tokenizer(manifest, tokenizer_spec.added_tokens)
    template = load_template(tokenizer, tokenizer_spec, root=root)
    ends = generation_eos_ids(manifest)
    return template, stop_sequences(template, eos_ids=ends, declared=tokenizer_spec.stops).ids


def load_evaluated(
    manifest: "Manifest",
    adapter: Path | None,
    *,
    dtype: Literal["fp32", "bf16"],
    threads: int,
    rows: int = 0,
) -> Any:
    """The base, or the base with an adapter on it, in eval mode, with deterministic algorithms.

    Of full fine-tuning the weights take the place of the base's (store/full_weights.py).

    The embedding gets at least `rows` rows, for added tokens.
    Sets torch's thread count and deterministic mode, and TF32 off, for the whole process.

    Raises:
        InputError: no adapter in the folder, or its tensors are not exactly the model's.
    """
    from hashtune.store.loader import load_base
    from hashtune.store.numerics import set_fp32_products

    set_fp32_products("ieee")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what CUDA needs to be deterministic
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # as training does, see training/model.py
    load = partial(load_base, manifest, dtype=dtype, rows=rows)
    base = load()
    if adapter is not None and has_full_weights(adapter):
        model = FullModel(base, load)
        model.lay_over(adapter)
        return model.eval()
    return (base if adapter is None else attach(base, adapter)).eval()


def attach(base: Any, adapter: Path) -> Any:
    """Put the adapter on the base and prove that every tensor of the one was used by the other.

    Raises:
        InputError: as `load_evaluated`.
    """
    from peft import PeftModel, get_peft_model_state_dict

    file = adapter / ADAPTER_FILE
    found = _names(file)
    soft = _read_config(adapter).is_prompt_learning
    if soft:  # PEFT would fail on a missing one in words of its own
        _check_names(file, wanted={SOFT_TENSOR}, found=found)
    try:
        with warnings.catch_warnings():
            # PEFT only warns of missing tensors, which are refused below, and reads an attribute
            # that transformers is about to rename
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
            model = PeftModel.from_pretrained(base, str(adapter))
    except ValueError as error:
        raise InputError(_unfit(adapter / CONFIG_FILE, error)) from error
    except RuntimeError as error:
        if (finding := _shapes(file, str(error))) is None:
            raise
        raise InputError(finding) from error
    wanted = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    _check_names(file, wanted=wanted, found=found)
    return WithVirtualTokens(model) if soft else model


def _names(file: Path) -> set[str]:
    """Names of the tensors in the file."""
    from safetensors import SafetensorError, safe_open

    for needed in (file, file.parent / CONFIG_FILE):  # PEFT would ask the hub for them
        if not needed.is_file():
            fix = "dvc repro train"
            raise InputError(Finding("no-adapter", "does not exist", needed.as_posix(), fix=fix))
    try:
        with safe_open(file, framework="pt") as tensors:
            return set(tensors.keys())
    except SafetensorError as error:
        message = f"is no safetensors file: {error}"
        raise InputError(Finding("adapter-broken", message, file.as_posix())) from error


def _read_config(adapter: Path) -> Any:
    """PEFT's settings of the adapter."""
    from peft import PeftConfig

    try:
        config = PeftConfig.from_pretrained(str(adapter))
        if config.peft_type is None:
            raise ValueError("peft_type is missing")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(_unfit(adapter / CONFIG_FILE, error)) from error
    return config


def _unfit(file: Path, error: Exception) -> Finding:
    message = f"PEFT does not take it on this base: {str(error).splitlines()[0]}"
    fix = "the adapter belongs to another base, or the file is broken"
    return Finding("adapter-config", message, file.as_posix(), fix=fix)


def _shapes(file: Path, error: str) -> Finding | None:
    """The first tensors that torch names as of another shape; None where it says another thing."""
    differing = MISMATCH.findall(error)
    if not differing:
        return None
    shown = [f"{name} is {found}, the model needs {needed}" for name, found, needed in differing]
    message = f"{len(differing)} tensors of another shape: {'; '.join(shown[:SAMPLES])}"
    fix = "the adapter belongs to another base, or its r is not that of adapter_config.json"
    return Finding("adapter-shape", message, file.as_posix(), fix=fix)


def _check_names(file: Path, *, wanted: set[str], found: set[str]) -> None:
    faults = [("missing", wanted - found), ("unexpected", found - wanted)]
    findings = [
        Finding(
            f"adapter-{kind}",
            f"{len(names)} {kind} tensors, for instance {', '.join(sorted(names)[:3])}",
            file=file.as_posix(),
            fix="the adapter belongs to another base or was saved by another version",
        )
        for kind, names in faults
        if names
    ]
    if findings:
        raise InputError(findings)
