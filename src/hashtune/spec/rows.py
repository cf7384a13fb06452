"""What a data file may be declared as: formats, schemas with their fields, rules of a row.

Stands beside the spec so that a wrong name is refused when the spec is composed.
"""

import re
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
    "unknown-field",
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
    "two-reasonings",
    "unstable",
    "weight",
)
DEFAULT = "default"
REMOTE = ("https", "s3")
# parameters by which an address opens what is not public
SIGNED = re.compile(
    r"[?&](x-(amz|goog)-(signature|credential|security-token)|sig(nature)?"
    r"|([a-z]+[_-])?(token|api[_-]?key|password|secret))=",
    re.IGNORECASE,
)


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


def used_columns(schema: Schema, fields: Mapping[str, str]) -> frozenset[str]:
    """The file's own names of all fields that the schema reads ("id" is not read)."""
    return FIELDS[schema] - fields.keys() - {"id"} | set(fields.values())


def remote_scheme(uri: str) -> str | None:
    """The scheme of a URL, None for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else None


def address_fault(uri: str) -> tuple[str, str, str] | None:
    """(rule, message, fix) for a URL that cannot be used; the words do not repeat the URL."""
    if fault := secret_fault(uri):
        return fault
    scheme, _, rest = uri.partition("://")
    if not (_is_bucket(rest) if scheme == "s3" else _is_host(uri)):
        return "address", "names no host or bucket", "give the whole address of the file"
    if scheme == "s3" and not rest.partition("/")[2].strip("/"):
        return "address", "names a bucket and no file in it", "give the whole address of the file"
    return None


def secret_fault(uri: str) -> tuple[str, str, str] | None:
    """(rule, message, fix) for a URL that opens what is not public to whoever reads it."""
    rest = uri.partition("://")[2]
    if "@" not in re.split(r"[/?#]", rest, maxsplit=1)[0] and not SIGNED.search(rest):
        return None
    message = "the address holds a password, signature or token; conf/ and reports are in Git"
    return "secret", message, "keep it in ~/.netrc, or in the profile of your S3 client"


def _is_bucket(rest: str) -> bool:
    return bool(rest.partition("/")[0].strip())


def _is_host(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # brackets, a port that is none, a name that no resolver takes
        return False


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
