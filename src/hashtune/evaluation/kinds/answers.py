"""Kinds of rule about what an answer says: a number, a refusal, a script, or the same twice."""

import re
import unicodedata

from hashtune.evaluation.kinds.base import COUNT, FLAG, NUMBER, Kind, find_phrase, lines_of
from hashtune.evaluation.kinds.refusals import MARKERS

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_AROUND = " \t\n.!=*\"'"
_OPENING = 40  # words within which a refusal says so; later "I will not" is part of the help
_RUN = 4  # words that make a loop when they come again and again
#: How the Unicode names of a script's letters begin.
SCRIPTS = {
    "arabic": ("ARABIC",),
    "cyrillic": ("CYRILLIC",),
    "greek": ("GREEK",),
    "hangul": ("HANGUL",),
    "hebrew": ("HEBREW",),
    "japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "chinese": ("CJK",),
    "devanagari": ("DEVANAGARI",),
    "latin": ("LATIN",),
}


def _number(value: float, text: str) -> bool:
    return any(float(token.replace(",", "")) == value for token in _NUMBER.findall(text))


def _only_number(value: float, text: str) -> bool:
    token = _NUMBER.fullmatch(text.strip(_AROUND))
    return token is not None and float(token[0].replace(",", "")) == value


def _refusal(_: object, text: str) -> bool:
    opening = " ".join(text.split(maxsplit=_OPENING)[:_OPENING])
    return any(find_phrase(marker, opening) for marker in MARKERS)


def _script(value: str, text: str) -> bool:
    """More than half of the letters are of the script."""
    letters = [char for char in text if char.isalpha()]
    own = sum(unicodedata.name(char, "").startswith(SCRIPTS[value]) for char in letters)
    return 2 * own > len(letters)


def _distinct_lines(_: object, text: str) -> bool:
    lines = [line.casefold() for line in lines_of(text)]
    return len(set(lines)) == len(lines)


def _max_repeats(value: int, text: str) -> bool:
    words = text.casefold().split()
    seen: dict[tuple[str, ...], int] = {}
    for run in zip(*(words[start:] for start in range(_RUN)), strict=False):
        seen[run] = seen.get(run, 0) + 1
    return max(seen.values(), default=1) <= value


def _is_script(value: object) -> bool:
    return isinstance(value, str) and value in SCRIPTS


KINDS: dict[str, Kind] = {
    "number": Kind(*NUMBER, _number),
    "only_number": Kind(*NUMBER, _only_number),
    "no_digits": Kind(*FLAG, lambda _, text: not any(char.isdigit() for char in text)),
    "refusal": Kind(*FLAG, _refusal),
    "no_refusal": Kind(*FLAG, lambda _, text: not _refusal(_, text)),
    "script": Kind(f"one of {', '.join(SCRIPTS)}", _is_script, _script),
    "distinct_lines": Kind(*FLAG, _distinct_lines),
    "max_repeats": Kind(*COUNT, _max_repeats),
}
