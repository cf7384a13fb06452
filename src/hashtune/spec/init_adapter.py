"""base_model.init_adapter: the adapter that training continues from, instead of a fresh one.

A folder as PEFT writes it, inside the project (in Git or under DVC), pinned by the sha256 of its
weights. Checked here without a model: place, hash, and that its adapter_config.json says what
`method` says, so that the pin and `method` together decide the adapter. Names, shapes and values
of its tensors are checked against the model, in training/init_adapter.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune.errors import Finding
from hashtune.spec.init_tokens import INDICES, RULE, token_findings
from hashtune.spec.methods import PEFT_FILES
from hashtune.spec.places import PARAMS, folder_findings
from hashtune.spec.schema import InitAdapter, Method
from hashtune.strict_json import StrictJsonError, parse_strict
from hashtune.writers import sha256_file

WEIGHTS, CONFIG = PEFT_FILES
FIELD = "base_model.init_adapter"
KIND = "LORA"  # of the adapters that training continues from, and the methods that have it
METHODS = ("lora", "qlora")

# PEFT's meaning of a key that is not there, and the field of the spec that says the same
DEFAULTS = {"r": 8, "lora_alpha": 8, "use_rslora": False, "use_dora": False, "peft_type": None}
FIELDS = {"r": "r", "lora_alpha": "alpha", "use_rslora": "variant", "use_dora": "variant"}
# what changes neither the meaning of the tensors nor which there are (those are compared by name)
NEUTRAL = {
    *("task_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"),
    *("inference_mode", "lora_dropout", "target_modules", "exclude_modules", "layers_pattern"),
    *("layers_to_transform", "megatron_core", "qalora_group_size", "runtime_config"),
    INDICES,  # compared with the added tokens, in init_tokens.py
}
# the other ways to begin an adapter change the base too, which is then not the pinned one
BEGINNINGS: tuple[Any, ...] = (True, False, "gaussian")
UNSET: tuple[Any, ...] = (None, False, "none", [], {})


def init_findings(
    pin: InitAdapter, method: Method, added_tokens: Sequence[str], root: Path
) -> list[Finding]:
    """All findings about the pinned folder, read below `root`."""
    if method.type not in METHODS:
        message = f"is an adapter with LoRA matrices, and method.type {method.type} has none"
        fix = "set it to null, or method=lora"
        return [Finding("contradiction", message, file=PARAMS, field=FIELD, fix=fix)]
    if found := list(_places(pin, root)):
        return found
    folder = root / pin.path
    if (sha256 := sha256_file(folder / WEIGHTS)) != pin.sha256:
        message = f"{pin.path}/{WEIGHTS} has sha256 {sha256}, the spec pins {pin.sha256}"
        fix = "restore the file, or pin the new content in conf/"
        field = f"{FIELD}.sha256"
        found.append(Finding("pin-differs", message, file=PARAMS, field=field, fix=fix))
    config = _config(folder / CONFIG, f"{pin.path}/{CONFIG}")
    if isinstance(config, Finding):
        return [*found, config]
    found += config_findings(config, method, f"{pin.path}/{CONFIG}")
    return [*found, *token_findings(root, pin.path, config.get(INDICES), added_tokens)]


def _places(pin: InitAdapter, root: Path) -> Iterator[Finding]:
    fix = "name a folder with both files that PEFT writes; `dvc pull` if DVC tracks it"
    what = "an adapter to continue from"
    return folder_findings(pin.path, (WEIGHTS, CONFIG), root=root, field=FIELD, what=what, fix=fix)


def _config(path: Path, shown: str) -> dict[str, Any] | Finding:
    try:
        config = parse_strict(path.read_text(encoding="utf-8"))
    except (StrictJsonError, UnicodeDecodeError) as error:
        return Finding(RULE, f"is no JSON: {error}", file=shown)
    return config if isinstance(config, dict) else Finding(RULE, "is no JSON object", file=shown)


def config_findings(config: Mapping[str, Any], method: Method, shown: str) -> Iterator[Finding]:
    """A finding for each key of an adapter_config.json that says another thing than `method`; for
    the kind alone where that differs, since the keys of another kind mean something else."""
    known = DEFAULTS | dict(config)
    if known["peft_type"] != KIND:
        message = f"the adapter to continue from has peft_type {known['peft_type']!r}, not {KIND!r}"
        fix = "continue from another adapter, or set it to null"
        yield Finding(RULE, message, file=PARAMS, field=FIELD, fix=fix)
        return
    wanted = {
        "r": method.r,
        "lora_alpha": method.alpha,
        "use_rslora": method.variant == "rslora",
        "use_dora": method.variant == "dora",
    }
    for key, value in wanted.items():
        if known[key] != value:
            field = f"method.{FIELDS[key]}"
            message = f"the adapter to continue from has {key} {known[key]!r}, not {value!r}"
            fix = f"{field} as in {shown}, or another adapter"
            yield Finding(RULE, message, file=PARAMS, field=field, fix=fix)
    for key in sorted(config.keys() - wanted.keys() - NEUTRAL - {"peft_type"}):
        value = config[key]
        if value not in (BEGINNINGS if key == "init_lora_weights" else UNSET):
            message = f"sets {key} to {value!r}, which `method` cannot say"
            yield Finding(RULE, message, file=shown, field=key, fix="continue from another adapter")
