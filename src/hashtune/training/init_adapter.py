"""Continue from a pinned adapter: its values take the place of the fresh adapter's.

Read before the base is loaded, put in after; every difference is a finding, and nothing is filled
up or left out.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.spec.init_adapter import FIELD, WEIGHTS, init_findings
from hashtune.spec.init_tokens import RULE, TOKENS, read_rows
from hashtune.spec.schema import InitAdapter, Method
from hashtune.training.adapter import compare

DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # each value is one of fp32's
SAMPLES = 3
ROWS = "trainable_tokens_delta"  # in the names of PEFT's tensors for rows of added tokens


def read_adapter(
    pin: InitAdapter | None, method: Method, tokens: Mapping[str, int], root: Path
) -> dict[str, Tensor]:
    """The tensors of the pinned file in fp32, none without a pin. `tokens`: text -> id of the added
    ones, in the spec's order.

    Raises:
        InputError: as spec/init_adapter.py, for rows of tokens that have other ids in this base's
            tokenizer, and for a file that is no safetensors.
    """
    if pin is None:
        return {}
    findings = init_findings(pin, method, list(tokens), root)
    if findings or (findings := list(_ids(pin, tokens, root))):
        raise InputError(findings)
    try:
        tensors = load((root / pin.path / WEIGHTS).read_bytes())
    except SafetensorError as error:
        message = f"{pin.path}/{WEIGHTS} is no safetensors file: {error}"
        raise InputError(Finding(RULE, message, field=FIELD)) from error
    findings = [
        Finding(RULE, f"{name} has elements of {tensor.dtype}", file=pin.path, field=FIELD)
        for name, tensor in sorted(tensors.items())
        if tensor.dtype not in DTYPES
    ]
    if findings or not tensors:
        empty = Finding(RULE, f"{pin.path}/{WEIGHTS} holds no tensor", field=FIELD)
        raise InputError(findings or empty)
    return {name: tensor.float() for name, tensor in tensors.items()}


def _ids(pin: InitAdapter, tokens: Mapping[str, int], root: Path) -> Iterator[Finding]:
    for text, was in (read_rows(root, pin.path) if tokens else {}).items():
        if was != tokens[text]:
            message = f"row {was} of the adapter to continue from is {text!r}, which has the id "
            message += f"{tokens[text]} in this base's tokenizer"
            fix = "continue over the base that the adapter was trained on"
            yield Finding(RULE, message, file=f"{pin.path}/{TOKENS}", field=FIELD, fix=fix)


def continue_from(peft: Any, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the fresh adapter of the model the values of `start`; without any it stays fresh.

    Returns them in the adapter's type: as they are, or rounded to bf16 without master weights.

    Raises:
        InputError: `start` has other names or shapes than the adapter, or holds NaN or infinity.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    if not start:
        return {}
    fresh = get_peft_model_state_dict(peft, save_embedding_layers=False)
    if findings := [*_names(start, fresh), *_values(start, fresh)]:
        raise InputError(findings)
    values = {name: tensor.to(fresh[name].dtype) for name, tensor in start.items()}
    set_peft_model_state_dict(peft, dict(values))
    compare(get_peft_model_state_dict(peft, save_embedding_layers=False), values)
    return values


def _names(start: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> Iterator[Finding]:
    faults = (
        ("lacks", fresh.keys() - start.keys(), f"{len(fresh)} tensors that method.targets needs"),
        ("holds", start.keys() - fresh.keys(), f"{len(start)} tensors that it has no place for"),
    )
    for what, names, rest in faults:
        rows = {name for name in names if ROWS in name}
        if names := names - rows:
            samples = ", ".join(sorted(names)[:SAMPLES])
            message = f"the adapter to continue from {what} {len(names)} of {rest}: {samples}"
            fix = "set method.targets to what that adapter was trained with"
            yield Finding(RULE, message, file="params.yaml", field="method.targets", fix=fix)
        if rows:
            message = f"the adapter to continue from {what} rows of added tokens: "
            message += ", ".join(sorted(rows))
            fix = "continue over a base whose head is tied, or not, as that adapter's was"
            yield Finding(RULE, message, file="params.yaml", field=FIELD, fix=fix)


def _values(start: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> Iterator[Finding]:
    for name in sorted(start.keys() & fresh.keys()):
        shape, needed = list(start[name].shape), list(fresh[name].shape)
        if shape != needed:
            yield Finding(RULE, f"{name} has shape {shape}, the model needs {needed}", field=FIELD)
        elif not bool(torch.isfinite(start[name]).all()):
            yield Finding(RULE, f"{name} holds NaN or infinity", field=FIELD)
