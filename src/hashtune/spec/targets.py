"""method.targets: which linear modules carry an adapter, and how many each entry matches.

One rule for the plan, which knows names from config.json, and for train, which knows the model.
"all-linear" is every name; an entry of a list is a name, equal or the end of it after a dot as PEFT
has it ("q_proj", "0.mlp.up_proj"), or `re:` and a regular expression for the whole name. The names
are those of the linear modules without the head, which carries no adapter.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from hashtune.errors import Finding, InputError, nearest

ALL_LINEAR = "all-linear"
PATTERN = "re:"
LONGEST = 200  # characters of a pattern; it comes from the user's own Git, so no more than this


@dataclass(frozen=True, slots=True)
class Matched:
    """Sorted full names of the modules that carry an adapter; entry -> how many it matches."""

    names: tuple[str, ...]
    counts: dict[str, int]


def match(modules: Iterable[str], targets: str | Sequence[str]) -> Matched:
    """What the targets match among the full names of a model's linear modules.

    Raises:
        InputError: a finding for each entry that is faulty or matches none of the names.
    """
    names = sorted(modules)
    if not names:
        message = "the base has no linear module beside its head"
        raise InputError(Finding("target", message, field="method.targets"))
    if isinstance(targets, str):
        return Matched(tuple(names), {targets: len(names)})
    findings, found = [], dict[str, list[str]]()
    for index, entry in enumerate(targets):
        fault = _entry_fault(targets, index)
        matched = [] if fault else [name for name in names if _matches(entry, name)]
        if matched:
            found[entry] = matched
        else:
            none = f"{_shown(entry)} matches 0 modules; {_hint(entry, names)}"
            findings.append(_fault(index, fault or none))
    if findings:
        raise InputError(findings)
    adapted = sorted(set(chain.from_iterable(found.values())))
    return Matched(tuple(adapted), {entry: len(names) for entry, names in found.items()})


def entry_faults(targets: str | Sequence[str]) -> list[Finding]:
    """Findings about entries that no model could make right."""
    if isinstance(targets, str):
        return []
    faults = ((index, _entry_fault(targets, index)) for index in range(len(targets)))
    return [_fault(index, message) for index, message in faults if message]


def _entry_fault(targets: Sequence[str], index: int) -> str | None:
    entry = targets[index]
    if fault := _blank_fault(entry):
        return fault
    if entry in targets[:index]:
        return f"{_shown(entry)} is there twice"
    if entry == ALL_LINEAR:
        return f"{_shown(entry)} stands alone, not in a list"
    return _pattern_fault(entry) if entry.startswith(PATTERN) else None


def _blank_fault(entry: str) -> str | None:
    text = entry.removeprefix(PATTERN)
    if not text.strip():
        return f"{_shown(entry)} is empty"
    if text != text.strip():
        return f"{_shown(entry)} begins or ends with a blank, and no module does"
    return None


def _pattern_fault(entry: str) -> str | None:
    if len(entry) > LONGEST:
        return f"a pattern of {len(entry)} characters; {LONGEST} are allowed"
    try:
        re.compile(entry.removeprefix(PATTERN))
    except (re.error, OverflowError) as error:
        return f"{_shown(entry)} is no regular expression: {error}"
    return None


def _shown(entry: str) -> str:
    """In quotes, a pattern's backslashes as they were written."""
    return repr(entry).replace("\\\\", "\\")


def _matches(entry: str, name: str) -> bool:
    if entry.startswith(PATTERN):
        return re.fullmatch(entry.removeprefix(PATTERN), name) is not None
    return name == entry or name.endswith(f".{entry}")


def _hint(entry: str, names: Sequence[str]) -> str:
    """The nearest whole name for a pattern, else the nearest ending of as many parts."""
    if entry.startswith(PATTERN):
        text = entry.removeprefix(PATTERN).replace("\\", "")
        close = difflib.get_close_matches(text, names, n=1, cutoff=0.0)
        return f"a pattern is held against whole names, the nearest is {close[0]!r}"
    endings = _endings(names, parts=entry.count(".") + 1)
    if close := difflib.get_close_matches(entry, endings, n=1):
        return f"did you mean {close[0]!r}?"
    return nearest(entry, _endings(names, parts=1))


def _endings(names: Sequence[str], *, parts: int) -> list[str]:
    return sorted({".".join(name.split(".")[-parts:]) for name in names})


def _fault(index: int, message: str) -> Finding:
    fix = "write a name, the end of one, or re: and a pattern (conf/method/lora.yaml)"
    return Finding("target", message, file="params.yaml", field=f"method.targets[{index}]", fix=fix)
