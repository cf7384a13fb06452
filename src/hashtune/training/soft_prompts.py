"""Prompt and prefix tuning in training: PEFT's settings, and what must hold of virtual tokens.

A prompt begins as embeddings of drawn tokens, not as PEFT's default of standard normal numbers,
which are far larger than any embedding; a prefix begins as PEFT draws it. Virtual tokens belong to
one document, so a row holds one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.spec.methods import SOFT
from hashtune.spec.schema import Method

SAMPLES = 3


def soft_config(method: Method) -> object:
    """PEFT's configuration of a prompt or prefix."""
    from peft import PrefixTuningConfig, PromptTuningConfig, PromptTuningInit

    plain: dict[str, Any] = {
        "num_virtual_tokens": method.virtual_tokens,
        "task_type": "CAUSAL_LM",
    }
    if method.type == "prefix":
        prefix: object = PrefixTuningConfig(**plain)
        return prefix
    init = PromptTuningInit.SAMPLE_VOCAB
    prompt: object = PromptTuningConfig(**plain, prompt_tuning_init=init)
    return prompt


def check_single_documents(method: Method, rows: Sequence[Row]) -> None:
    """Raise InputError when a row holds several documents and the method has virtual tokens."""
    packed = [row.row for row in rows if len(row.lengths) > 1]
    if method.type not in SOFT or not packed:
        return
    message = (
        f"{len(packed)} rows hold several documents, row {packed[0]} first, and only one of them "
        f"can follow the virtual tokens of method.type {method.type}"
    )
    fix = "data.packing=false"
    raise InputError(Finding("packed-prompt", message, field="data.packing", fix=fix))


def check_all_parts(peft: Any, changes: Mapping[str, Tensor], *, what: str) -> None:
    """Raise InputError naming virtual tokens, and layers of a prefix, whose `changes` are zero.

    Args:
        peft: with a prompt or prefix.
        changes: of its one parameter: the gradient, or what training added.
        what: said of the parts without a change.
    """
    (change,) = changes.values()
    still = _still_parts(peft.active_peft_config, change)
    if still:
        named = ", ".join(still[:SAMPLES])
        message = f"{len(still)} parts of the virtual tokens {what}: {named}"
        raise InputError(Finding("untrained-prompt", message, field="method.type"))


def _still_parts(config: Any, change: Tensor) -> list[str]:
    """A prompt is (V, H); a prefix (V, L * 2 * D) holds keys and values of one layer after the
    other."""
    tokens = change.any(dim=1).tolist()
    still = [f"token {number}" for number, moved in enumerate(tokens) if not moved]
    if str(config.peft_type.value) != "PREFIX_TUNING":
        return still
    layers = change.view(len(tokens), config.num_layers, 2, -1).any(dim=3).any(dim=0).tolist()
    for number, moved in enumerate(layers):
        names = zip(("keys", "values"), moved, strict=True)
        still += [f"{name} of layer {number}" for name, has in names if not has]
    return still
