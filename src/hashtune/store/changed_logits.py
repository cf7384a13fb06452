"""Bases that change what their head gives, known by name before anything is loaded.

Training computes the loss from the head itself. That a base does no more is measured on the model
(training/own_values.py); what is known by name is refused by the plan already.
"""

from collections.abc import Mapping
from typing import Any

from hashtune.errors import Finding

# and the value that changes nothing (Granite; Gemma 2; Cohere; Falcon H1)
CHANGES_LOGITS = (
    ("logits_scaling", 1.0),
    ("final_logit_softcapping", None),
    ("logit_scale", 1.0),
    ("lm_head_multiplier", 1.0),
)


def changed_logits(config: Mapping[str, Any]) -> list[Finding]:
    """A finding for a configuration that scales or caps the logits: the loss would be another."""
    changed = [name for name, neutral in CHANGES_LOGITS if config.get(name) not in (neutral, None)]
    if not changed:
        return []
    message = f"this base changes its logits ({', '.join(changed)}); train does not yet"
    return [Finding("unsupported-model", message, field="base_model", fix="another base")]
