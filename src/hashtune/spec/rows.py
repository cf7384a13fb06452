"""What a data file may be declared as: formats, schemas with their fields, rules of a row.

Stands beside the spec so that a wrong name is refused when the spec is composed.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from hashtune.errors import nearest

Format = Literal["jsonl", "json", "csv", "tsv", "parquet"]
Schema = Literal["messages", "instruction", "sharegpt", "prompt_completion"]
Action = Literal["error", "drop"]

# the first is the field that tells a row's schema; a row without a needed field cannot be used
NEEDED: dict[str, tuple[str, ...]] = {
    "messages": ("messages",),
    "instruction": ("instruction", "output"),
    "sharegpt": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
}
FIELDS: dict[str, frozenset[str]] = {
    "messages": frozenset({"id", "messages", "group"}),
    "instruction": frozenset({"id", "instruction", "input", "output", "system", "group"}),
    "sharegpt": frozenset({"id", "conversations", "system", "group"}),
    "prompt_completion": frozenset({"id", "prompt", "completion", "system", "group"}),
}
REMOTE = ("https", "s3")


def field_faults(schema: Schema, fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(target, message) for each part of a field mapping that cannot be meant."""
    for target, name in fields.items():
        if target not in FIELDS[schema]:
            hint = nearest(target, FIELDS[schema])
            yield target, f"schema {schema} has no field {target!r}; {hint}"
        elif not name.strip():
            yield target, "names no field of the file"
        elif list(fields.values()).count(name) > 1:
            yield target, f"field {name!r} of the file is given twice"


def columns(schema: Schema, fields: Mapping[str, str]) -> list[str]:
    """The columns that a table must have: those the schema needs and those the mapping names."""
    needed = [fields.get(target, target) for target in NEEDED[schema]]
    return list(dict.fromkeys([*needed, *fields.values()]))


def remote_scheme(uri: str) -> str | None:
    """The scheme of a URL, None for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else None
