"""What the files of a base say about it: its chat template, its number of weights."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError

HEADER_LIMIT = 100_000_000  # bytes; the limit that safetensors itself sets


def template_text(directory: Path) -> str | None:
    """The chat template that transformers would use from this directory; None when there is none.

    A chat_template.jinja wins over tokenizer_config.json; of several named ones "default" counts.
    """
    jinja, config = directory / "chat_template.jinja", directory / "tokenizer_config.json"
    if jinja.is_file():
        return jinja.read_text(encoding="utf-8")
    if not config.is_file():
        return None
    template = read_object(config).get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def read_object(path: Path) -> dict[str, Any]:
    """Parse a JSON file that must hold an object; InputError when it does not."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # covers broken JSON and broken UTF-8
        raise InputError(Finding("bad-json", str(error), file=path.name)) from error
    if not isinstance(value, dict):
        raise InputError(Finding("bad-json", "is no JSON object", file=path.name))
    return value


def count_parameters(weights: Iterable[Path]) -> int:
    """Number of stored weights, from the headers of the safetensors files (a tied head once)."""
    shapes = [
        tensor["shape"]
        for path in weights
        for key, tensor in _header(path).items()
        if key != "__metadata__"
    ]
    return sum(math.prod(shape) for shape in shapes)


def _header(path: Path) -> dict[str, Any]:
    """The JSON header: 8 bytes of length (little-endian), then that many bytes of JSON."""
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        text = handle.read(min(length, HEADER_LIMIT))
    try:
        header: dict[str, Any] = json.loads(text)
    except ValueError as error:
        finding = Finding("bad-safetensors", "has no readable header", file=path.name)
        raise InputError(finding) from error
    return header


def vocabulary_size(config: Mapping[str, Any]) -> int | None:
    """Rows of the embedding as config.json says, in its text part where the model has several."""
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and "vocab_size" in part:
            return int(part["vocab_size"])
    return None
