"""What a data file may be declared as: formats, schemas with their fields, rules of a row.

Stands beside the spec so that a wrong name is refused when the spec is composed.
"""

from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import urlsplit

from hashtune.errors import nearest

Format = Literal["jsonl", "json", "csv", "tsv", "parquet"]
Schema = Literal["messages", "instruction", "sharegpt", "prompt_completion", "text"]
Action = Literal["error", "drop"]

# the first is the field that tells a row's schema; a row without a needed field cannot be used
NEEDED: dict[str, tuple[str, ...]] = {
    "messages": ("messages",),
    "instruction": ("instruction", "output"),
    "sharegpt": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "text": ("text",),
}
FIELDS: dict[str, frozenset[str]] = {
    "messages": frozenset({"id", "messages", "group"}),
    "instruction": frozenset({"id", "instruction", "input", "output", "system", "group"}),
    "sharegpt": frozenset({"id", "conversations", "system", "group"}),
    "prompt_completion": frozenset({"id", "prompt", "completion", "system", "group"}),
    "text": frozenset({"id", "text", "group"}),
}
# what a row may break; a policy may drop it. A damaged file is refused whatever the policy says
ROW_RULES = (
    "blank",
    "content-part",
    "function-call",
    "empty",
    "last-not-assistant",
    "missing",
    "mixed-schema",
    "no-assistant",
    "null",
    "role-order",
    "train-weight",
    "unknown-role",
    "wrong-type",
)
# what a row may break once its template and tokenizer are known; the same policy may drop it. A
# rule that is not here ("proof", "no-stop") is no fault of a row and stops the stage in any case
TALK_RULES = (
    "as-prompted",
    "blank-content",
    "consecutive-assistant",
    "content-part",
    "content-type",
    "control-token",
    "dropped",
    "mismatch",
    "no-answer",
    "no-body",
    "no-messages",
    "no-prompt",
    "nothing-to-learn",
    "null-content",
    "open-reasoning",
    "role",
    "stop-merged",
    "system-merge",
    "template-refuses",
    "tool-arguments",
    "tool-calls",
    "trailing",
    "train",
    "train-weight",
    "turn-end",
    "unstable",
    "weight",
)
DEFAULT = "default"
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


def address_fault(uri: str) -> tuple[str, str, str] | None:
    """(rule, message, fix) for a URL that cannot be used; the words do not repeat the URL."""
    try:
        place = urlsplit(uri).netloc
    except ValueError:
        place = ""
    if "@" in place or (not place and "@" in uri):
        message = "the address holds a user or password, and conf/ and reports are in Git"
        return "secret", message, "keep it in ~/.netrc, or in the profile of your S3 client"
    if not place:
        return "address", "names no host or bucket", "give the whole address of the file"
    return None


def action(on_bad_row: Action | Mapping[str, Action], rule: str) -> Action:
    """What the spec says about rows that break this rule; "error" where it says nothing."""
    if isinstance(on_bad_row, str):
        return on_bad_row
    return on_bad_row.get(rule, on_bad_row.get(DEFAULT, "error"))


def policy_faults(on_bad_row: Action | Mapping[str, Action]) -> Iterator[tuple[str, str]]:
    """(key, message) for each part of `cleaning.on_bad_row` that cannot be meant."""
    if isinstance(on_bad_row, str):
        return
    if DEFAULT not in on_bad_row:
        yield DEFAULT, "is missing: it says what happens to rows that break another rule"
    known = {*ROW_RULES, *TALK_RULES, DEFAULT}
    for rule in on_bad_row:
        if rule not in known:
            yield rule, f"no rule of a row; {nearest(rule, known)}"
