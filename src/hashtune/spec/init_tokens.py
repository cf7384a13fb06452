"""Trained rows of added tokens in an adapter to continue from: the same texts, in the same order.

PEFT's adapter_config.json has the ids of the rows and no text. Which text each is stands beside it
in added_token_rows.json, which train writes: [{"id": 512, "text": "<|a|>"}, ...] in the order of
tokenizer.added_tokens. Those ids are checked with the base's tokenizer in training/init_adapter.py.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.places import PARAMS, place
from hashtune.strict_json import StrictJsonError, parse_strict

TOKENS = "added_token_rows.json"
INDICES = "trainable_token_indices"
FIELD = "tokenizer.added_tokens"
RULE = "init-adapter"


def token_findings(
    root: Path, folder: str, indices: object, added: Sequence[str]
) -> Iterator[Finding]:
    """All findings about the rows of added tokens in the adapter of `folder` below `root`.

    Args:
        root: of the project.
        folder: the adapter's, as the spec gives it.
        indices: its `trainable_token_indices`, None without rows.
        added: texts of the spec.
    """
    if not indices and added:
        message = f"adds {len(added)} tokens, and the adapter to continue from has no rows of any"
        fix = f"{FIELD}=[], or an adapter that was trained with them"
        yield Finding(RULE, message, file=PARAMS, field=FIELD, fix=fix)
    if indices and not added:
        message = f"is [], and the adapter to continue from has trained rows: {indices!r}"
        fix = f"its tokens in the order of {folder}/{TOKENS}, or another adapter"
        yield Finding(RULE, message, file=PARAMS, field=FIELD, fix=fix)
    if not indices or not added:
        return
    try:
        rows = read_rows(root, folder)
    except InputError as error:
        yield from error.findings
        return
    if list(rows) != list(added):
        message = f"is {list(added)}, and the adapter to continue from has rows of {list(rows)}"
        fix = f"the same texts in the same order as in {folder}/{TOKENS}, or another adapter"
        yield Finding(RULE, message, file=PARAMS, field=FIELD, fix=fix)
    ids = sorted(rows.values())
    if not isinstance(indices, dict) or any(found != ids for found in indices.values()):
        message = f"is {indices!r}, and {TOKENS} beside it has the ids {ids}"
        fix = "restore both files as they were written"
        yield Finding(RULE, message, file=f"{folder}/adapter_config.json", field=INDICES, fix=fix)


def read_rows(root: Path, folder: str) -> dict[str, int]:
    """Text -> id of the rows in the adapter of `folder`, in the order of the file.

    Raises:
        InputError: the file is missing, outside the project, or says something else.
    """
    shown = f"{folder}/{TOKENS}"
    path, there = place(root, shown)
    if not path.is_relative_to(root.resolve()):
        raise InputError(
            Finding("outside-root", f"'{shown}' leaves the project", file=PARAMS, field=FIELD)
        )
    if not there:
        message = "does not exist, and nothing else says which text each trained row belongs to"
        fix = 'write [{"id": ..., "text": ...}, ...] in the order of its added tokens'
        raise InputError(Finding(RULE, message, file=shown, fix=fix))
    try:
        return _rows(parse_strict(path.read_text(encoding="utf-8")))
    except (StrictJsonError, UnicodeDecodeError, TypeError, KeyError) as error:
        message = f"is no list of ids and texts, each once: {error}"
        raise InputError(Finding(RULE, message, file=shown)) from error


def _rows(value: Any) -> dict[str, int]:
    """Raises TypeError or KeyError for a value of another form."""
    if not isinstance(value, list):
        raise TypeError("no list")
    rows = {row["text"]: row["id"] for row in value}
    if not all(isinstance(text, str) and type(of) is int for text, of in rows.items()):
        raise TypeError("a text is no string, or an id no integer")
    if not len(value) == len(rows) == len(set(rows.values())):
        raise TypeError("a text or an id is there twice")
    return rows
