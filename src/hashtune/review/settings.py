"""What changed in the run spec: a line per setting, under what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hashtune.lineage.lock import lookup
from hashtune.review.consequences import Group, consequence
from hashtune.spec.drift import Difference, differences

OTHER = "is no setting that this version knows"
# what only says where a pinned content lies, beside the pin
PLACES, PIN = ("uri", "chat_template"), "sha256"
MOVED = "names another place of the same content, by its sha256"
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
    old, new = _named(base), _named(head)
    found = [_change(difference) for difference in differences(old, new)]
    return [_told_as_moved(change) if _only_moved(change, old, new) else change for change in found]


def _only_moved(change: Change, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a path changed and the pin beside it did not, so that the content is the same."""
    section, _, name = change.key.rpartition(".")
    if name not in PLACES or not (isinstance(change.old, str) and isinstance(change.new, str)):
        return False
    pins = [lookup(side, f"{section}.{PIN}") for side in (old, new)]
    return isinstance(pins[0], str) and pins[0] == pins[1]


def _told_as_moved(change: Change) -> Change:
    return replace(change, groups=(Group.NAMES,), words=MOVED)


def effective_batch(params: Mapping[str, Any]) -> int | None:
    """Rows of an optimizer step: micro * grad_accum * world_size; None where one is missing."""
    product = 1
    for name in SEQUENCES:
        value = lookup(params, f"batch.{name}")
        if not isinstance(value, int) or isinstance(value, bool):
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
