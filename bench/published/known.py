"""The configs of the measured models, which the plan ships."""

import json
from importlib.resources import files
from typing import Any


def config_of(model: str) -> dict[str, Any]:
    """The file of hashtune.memory.known: config, parameters, nominal size, source."""
    text = (files("hashtune.memory") / "known" / f"{model}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
