"""Writing the adapter so that equal weights are equal bytes, and proving what was written."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hashtune import writers
from hashtune.spec.init_tokens import TOKENS
from hashtune.spec.methods import FULL_FILES, PEFT_FILES
from hashtune.store.full_weights import FullModel, has_full_weights

WEIGHTS, CONFIG = PEFT_FILES


def write_adapter(
    peft: Any,
    folder: Path,
    *,
    base_name: str,
    revision: str,
    tokens: Mapping[str, int] | None = None,
    prove: Callable[[Path], None] | None = None,
) -> None:
    """Write adapter_model.safetensors and adapter_config.json as PEFT reads them, or of a FullModel
    its model.safetensors and full.json.

    PEFT's own config would name this machine's store path and print a set in hash order. `tokens`
    are the added ones, text -> id: the config has the ids of their rows only, and whoever continues
    from the adapter needs the texts (spec/init_tokens.py). `prove` gets the folder before it has
    its real name: what fails never has it.
    """
    full = isinstance(peft, FullModel)
    state, config = _full_parts(peft) if full else _peft_parts(peft)
    weights, settings = FULL_FILES if full else PEFT_FILES
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(state.items())}
    config |= {"base_model_name_or_path": base_name, "revision": revision}
    with writers.staged_directory(folder) as staged:
        save_file(tensors, staged / weights, metadata={"format": "pt"})
        writers.write_json(staged / settings, {k: _plain(v) for k, v in config.items()})
        if tokens and not full:  # nobody continues from full weights
            rows = [{"id": number, "text": text} for text, number in tokens.items()]
            writers.write_json(staged / TOKENS, rows)
        check_adapter(staged, tensors, weights)
        if prove is not None:
            prove(staged)


def _peft_parts(peft: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """PEFT's tensors of the adapter, and its configuration."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(peft, save_embedding_layers=False)
    config = peft.peft_config["default"].to_dict() | {"inference_mode": True}
    if "target_modules" in config:  # a prompt or prefix has none
        config["target_modules"] = sorted(config["target_modules"])
    return state, config


def _full_parts(model: FullModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All weights; `vocab_size` is the rows of the embedding, with those of added tokens."""
    rows = model.get_base_model().get_input_embeddings().weight.shape[0]
    return model.tensors(), {"method": "full", "dtype": "float32", "vocab_size": int(rows)}


def weights_file(folder: Path) -> Path:
    """The file of the weights that `write_adapter` left."""
    return folder / (FULL_FILES if has_full_weights(folder) else PEFT_FILES)[0]


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, str | int | float | bool | type(None) | list | dict):
        return value
    return str(getattr(value, "value", value))


def check_adapter(folder: Path, expected: Mapping[str, Tensor], weights: str = WEIGHTS) -> None:
    """Reopen the file: the expected names and shapes, elements, finite values.

    Raises AssertionError: a broken file here is a fault of ours, not of the input.
    """
    found = load_file(folder / weights)
    _check_names(found, expected)
    for name, tensor in found.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape"
        assert tensor.numel() > 0, f"{name} is empty"
        assert bool(torch.isfinite(tensor).all()), f"{name} is not finite"


def compare(loaded: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Raise AssertionError unless what PEFT loaded is what the file holds, name by name."""
    _check_names(written, loaded)
    for name, tensor in written.items():
        assert torch.equal(loaded[name].cpu(), tensor), f"{name} loads with other values"


def _check_names(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for what, names in (("lacks", expected.keys() - found), ("adds", found.keys() - expected)):
        samples = ", ".join(sorted(names)[:3])
        assert not names, f"adapter file has other names than the model: {what} {samples}"
