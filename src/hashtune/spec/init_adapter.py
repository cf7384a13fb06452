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
from hashtune.spec.methods import PEFT_FILES
from hashtune.spec.places import place
from hashtune.spec.rows import remote_scheme
from hashtune.spec.schema import InitAdapter, Method
from hashtune.strict_json import StrictJsonError, parse_strict
from hashtune.writers import sha256_file

WEIGHTS, CONFIG = PEFT_FILES
FIELD = "base_model.init_adapter"
RULE = "init-adapter"
PARAMS = "params.yaml"

# PEFT's meaning of a key that is not there, and the field of the spec that says the same
DEFAULTS = {"r": 8, "lora_alpha": 8, "use_rslora": False, "use_dora": False, "peft_type": None}
FIELDS = {"r": "r", "lora_alpha": "alpha", "use_rslora": "variant", "use_dora": "variant"}
# what changes neither the meaning of the tensors nor which there are (those are compared by name)
NEUTRAL = {
    *("task_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"),
    *("inference_mode", "lora_dropout", "target_modules", "exclude_modules", "layers_pattern"),
    *("layers_to_transform", "megatron_core", "qalora_group_size", "runtime_config"),
}
# the other ways to begin an adapter change the base too, which is then not the pinned one
BEGINNINGS: tuple[Any, ...] = (True, False, "gaussian")
UNSET: tuple[Any, ...] = (None, False, "none", [], {})


def init_findings(
    pin: InitAdapter, method: Method, added_tokens: Sequence[str], root: Path
) -> list[Finding]:
    """All findings about the pinned folder, read below `root`."""
    found = list(_places(pin, root))
    if added_tokens:
        message = "continuing from an adapter with added tokens is not in this version"
        fix = "set it to null, or tokenizer.added_tokens to []"
        found.append(Finding("not-there-yet", message, file=PARAMS, field=FIELD, fix=fix))
    if found:
        return found
    folder = root / pin.path
    if (sha256 := sha256_file(folder / WEIGHTS)) != pin.sha256:
        message = f"{pin.path}/{WEIGHTS} has sha256 {sha256}, the spec pins {pin.sha256}"
        fix = "restore the file, or pin the new content in conf/"
        field = f"{FIELD}.sha256"
        found.append(Finding("pin-differs", message, file=PARAMS, field=field, fix=fix))
    return [*found, *_config(folder / CONFIG, f"{pin.path}/{CONFIG}", method)]


def _places(pin: InitAdapter, root: Path) -> Iterator[Finding]:
    if remote_scheme(pin.path):
        message = "is a URL, and an adapter to continue from lies in the project"
        yield Finding("outside-root", message, file=PARAMS, field=FIELD, fix="put it under data/")
        return
    for name in (WEIGHTS, CONFIG):
        path, there = place(root, f"{pin.path}/{name}")
        shown = f"'{pin.path}/{name}'"
        if not path.is_relative_to(root.resolve()):
            message, fix = f"{shown} leaves the project", "put the folder under data/"
            yield Finding("outside-root", message, file=PARAMS, field=FIELD, fix=fix)
        elif not there:
            fix = "name a folder with both files that PEFT writes; `dvc pull` if DVC tracks it"
            message = f"{shown} does not exist"
            yield Finding("no-file", message, file=PARAMS, field=FIELD, fix=fix)


def _config(path: Path, shown: str, method: Method) -> list[Finding]:
    try:
        config = parse_strict(path.read_text(encoding="utf-8"))
    except (StrictJsonError, UnicodeDecodeError) as error:
        return [Finding(RULE, f"is no JSON: {error}", file=shown)]
    if not isinstance(config, dict):
        return [Finding(RULE, "is no JSON object", file=shown)]
    return list(config_findings(config, method, shown))


def config_findings(config: Mapping[str, Any], method: Method, shown: str) -> Iterator[Finding]:
    """A finding for each key of an adapter_config.json that says another thing than `method`."""
    wanted = {
        "peft_type": "LORA",
        "r": method.r,
        "lora_alpha": method.alpha,
        "use_rslora": method.variant == "rslora",
        "use_dora": method.variant == "dora",
    }
    known = DEFAULTS | dict(config)
    for key, value in wanted.items():
        if known[key] != value:
            field = f"method.{FIELDS[key]}" if key in FIELDS else FIELD
            message = f"the adapter to continue from has {key} {known[key]!r}, not {value!r}"
            fix = f"{field} as in {shown}, or another adapter"
            yield Finding(RULE, message, file=PARAMS, field=field, fix=fix)
    for key in sorted(config.keys() - wanted.keys() - NEUTRAL):
        value = config[key]
        if value not in (BEGINNINGS if key == "init_lora_weights" else UNSET):
            message = f"sets {key} to {value!r}, which `method` cannot say"
            yield Finding(RULE, message, file=shown, field=key, fix="continue from another adapter")
