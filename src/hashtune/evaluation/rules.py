"""Rules that decide whether a generated answer passes a suite item.

An item of a suite carries ``rules``, and the answer passes when every rule holds:

    {"kind": "max_words", "value": 30}      {"kind": "one_sentence"}

Rules are plain string checks, so a score needs no judge model and never changes between runs; the
price is that they see form and key words, not meaning. Conventions shared by all kinds:

* text is compared in Unicode NFC, without case, with curly quotes straightened, outer blanks and
  zero-width characters removed;
* a word is a blank-separated run holding a letter or digit;
* a blank answer fails every rule, whatever the kind.

``check_rules`` describes malformed rules; ``failed_rules`` and ``passes`` raise on them. The kinds
are in ``hashtune.evaluation.kinds``.
"""

import difflib
import json
from collections.abc import Mapping, Sequence

from hashtune.evaluation.kinds import answers, formats, lengths, words
from hashtune.evaluation.kinds.base import Kind, clean

#: Every kind by the name that suites use.
KINDS: dict[str, Kind] = {**words.KINDS, **lengths.KINDS, **formats.KINDS, **answers.KINDS}

_RULE_KEYS = {"kind", "value"}


def passes(rules: Sequence[Mapping[str, object]], answer: str) -> bool:
    """Say whether every rule holds for the answer. Raises as `failed_rules` does."""
    return not failed_rules(rules, answer)


def failed_rules(rules: Sequence[Mapping[str, object]], answer: str) -> list[str]:
    """List the rules that the answer breaks, each as ``kind`` or ``kind=value``, in order.

    Raises:
        ValueError: If `check_rules` finds fault with the rules.
    """
    faults = check_rules(rules)
    if faults:
        raise ValueError("; ".join(faults))
    text = clean(answer)
    return [
        _label(rule)
        for rule in rules
        if not text or not KINDS[str(rule["kind"])].holds(rule.get("value"), text)
    ]


def check_rules(rules: Sequence[Mapping[str, object]]) -> list[str]:
    """Describe every malformed rule by index; an empty list means that all are usable."""
    if not rules:
        return ["no rules: an item needs at least one"]
    return [fault for index, rule in enumerate(rules) for fault in _faults(index, rule)]


def _faults(index: int, rule: Mapping[str, object]) -> list[str]:
    name = rule.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        near = difflib.get_close_matches(str(name), KINDS, n=1, cutoff=0.0)[0]
        return [f"rule {index}: unknown kind {name!r}, nearest known is {near!r}"]
    faults = [
        f"rule {index} ({name}): unknown key {key!r}" for key in sorted(set(rule) - _RULE_KEYS)
    ]
    if not KINDS[name].accepts(rule.get("value")):
        faults.append(f"rule {index} ({name}): value must be {KINDS[name].wants}")
    return faults


def _label(rule: Mapping[str, object]) -> str:
    suffix = f"={json.dumps(rule['value'], ensure_ascii=False)}" if "value" in rule else ""
    return f"{rule['kind']}{suffix}"
