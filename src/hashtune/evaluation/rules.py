"""Rules that decide whether a generated answer passes a suite item.

An item of a suite carries ``rules``, and the answer passes when every rule holds:

    {"kind": "max_words", "value": 30}      {"kind": "one_sentence"}

Rules are plain string checks, so a score needs no judge model and never changes between runs; the
price is that they see form and key words, not meaning. Conventions shared by all kinds:

* text is compared without case, with curly apostrophes straightened and outer blanks removed;
* ``contains_*`` and ``excludes`` match whole words or phrases: "art" is not found in "start";
* a word is a blank-separated run holding a letter or digit;
* a blank answer fails every rule, whatever the kind.

``check_rules`` describes malformed rules; ``failed_rules`` and ``passes`` raise on them.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Phrases that mark an answer as a refusal, matched anywhere in it. A bare "I'm sorry" is none: it
#: also opens answers that go on to help.
REFUSAL_MARKERS = (
    "i can't",
    "i cannot",
    "i won't",
    "i will not",
    "i'm unable",
    "i am unable",
    "i'm not able",
    "i am not able",
    "i'm not equipped",
    "i must decline",
    "i'm sorry, but",
    "i am sorry, but",
    "i don't have the ability",
    "i don't have the capability",
    "can't assist",
    "cannot assist",
    "can't help with",
    "cannot help with",
)

_ABBREVIATIONS = re.compile(r"\b(?:mr|mrs|ms|dr|st|vs|e\.g|i\.e|u\.s)\.", re.IGNORECASE)
_SENTENCE_BREAK = re.compile(r"[.!?]+[\"')\]]*\s+")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")


@dataclass(frozen=True)
class Kind:
    """One kind of rule: what its value must be, and the check of an answer against it."""

    wants: str
    accepts: Callable[[object], bool]
    holds: Callable[[Any, str], bool]


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
    text = _clean(answer)
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


def _clean(text: str) -> str:
    return text.replace("\u2019", "'").replace("\u2018", "'").strip()


def _has_phrase(phrase: str, text: str) -> bool:
    pattern = rf"(?<!\w){re.escape(_clean(phrase))}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _count_words(text: str) -> int:
    return sum(any(char.isalnum() for char in word) for word in text.split())


def _starts_with(value: str, text: str) -> bool:
    return re.match(rf"{re.escape(_clean(value))}(?!\w)", text, re.IGNORECASE) is not None


def _ends_with(value: str, text: str) -> bool:
    return text.casefold().endswith(_clean(value).casefold())


def _one_sentence(_: object, text: str) -> bool:
    plain = _ABBREVIATIONS.sub("abbreviation", text)
    whole = len(text.splitlines()) == 1 and _SENTENCE_END.search(text) is not None
    return whole and _SENTENCE_BREAK.search(plain) is None


def _lines(value: int, text: str) -> bool:
    return sum(bool(line.strip()) for line in text.splitlines()) == value


def _json_object(value: list[str] | None, text: str) -> bool:
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(key in parsed for key in value or ())


def _number(value: float, text: str) -> bool:
    return any(float(token.replace(",", "")) == value for token in _NUMBER.findall(text))


def _refusal(_: object, text: str) -> bool:
    return any(_has_phrase(marker, text) for marker in REFUSAL_MARKERS)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_text(text) for text in value)


_FLAG = ("left out", lambda value: value is None)
_COUNT = ("a positive whole number", _is_count)
_TEXT = ("a text that is not blank", _is_text)
_TEXTS = ("a list of texts, none blank", _is_texts)
_KEYS = ("left out or a list of keys", lambda value: value is None or _is_texts(value))
_RULE_KEYS = {"kind", "value"}

#: Every kind by the name that suites use.
KINDS: dict[str, Kind] = {
    "contains_any": Kind(*_TEXTS, lambda value, text: any(_has_phrase(x, text) for x in value)),
    "contains_all": Kind(*_TEXTS, lambda value, text: all(_has_phrase(x, text) for x in value)),
    "excludes": Kind(*_TEXTS, lambda value, text: not any(_has_phrase(x, text) for x in value)),
    "starts_with": Kind(*_TEXT, _starts_with),
    "ends_with": Kind(*_TEXT, _ends_with),
    "max_words": Kind(*_COUNT, lambda value, text: _count_words(text) <= value),
    "min_words": Kind(*_COUNT, lambda value, text: _count_words(text) >= value),
    "one_sentence": Kind(*_FLAG, _one_sentence),
    "lines": Kind(*_COUNT, _lines),
    "lowercase": Kind(*_FLAG, lambda _, text: text.islower()),
    "uppercase": Kind(*_FLAG, lambda _, text: text.isupper()),
    "yes_no": Kind(*_FLAG, lambda _, text: _starts_with("yes", text) or _starts_with("no", text)),
    "json_object": Kind(*_KEYS, _json_object),
    "number": Kind("a number", _is_number, _number),
    "refusal": Kind(*_FLAG, _refusal),
    "no_refusal": Kind(*_FLAG, lambda _, text: not _refusal(_, text)),
}
