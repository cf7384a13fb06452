"""What changed in the run spec: a line per setting, under what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hashtune.lineage.lock import lookup
from hashtune.review.consequences import Group, consequence
from hashtune.spec.drift import Difference, differences

OTHER = "is no setting that this version knows"
SEQUENCES = ("micro", "grad_accum", "world_size")


@dataclass(frozen=True, slots=True)
class Change:
    """A setting before and after (None: absent or null), and what follows."""

    key: str
    old: object
    new: object
    groups: tuple[Group, ...]
    words: str


def changes(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[Change]:
    """Every setting that differs, in key order; of the sources of data each field by its name."""
    return [_change(found) for found in differences(_named(base), _named(head))]


def effective_batch(params: Mapping[str, Any]) -> int | None:
    """Rows of an optimizer step: micro * grad_accum * world_size; None where one is missing."""
    product = 1
    for name in SEQUENCES:
        value = lookup(params, f"batch.{name}")
        if not isinstance(value, int):
            return None
        product *= value
    return product


def _change(found: Difference) -> Change:
    try:
        follows = consequence(found.key)
    except KeyError:
        return Change(found.key, found.conf, found.params, (Group.WEIGHTS,), OTHER)
    return Change(found.key, found.conf, found.params, follows.groups, follows.words)


def _named(tree: Any) -> Any:
    """Lists of named entries as mappings, so that one changed field is one change."""
    if isinstance(tree, Mapping):
        return {key: _named(value) for key, value in tree.items()}
    if isinstance(tree, list) and tree and all(_has_name(entry) for entry in tree):
        names = [entry["name"] for entry in tree]
        if len(set(names)) == len(names):
            return {entry["name"]: _named(entry) for entry in tree}
    return tree


def _has_name(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
