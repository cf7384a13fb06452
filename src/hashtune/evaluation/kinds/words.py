"""Kinds of rule about which words, phrases and characters an answer holds, and where.

Words and phrases are matched whole and without case: "art" is not found in "start".
"""

from typing import Any

from hashtune.evaluation.kinds.base import (
    TEXT,
    TEXTS,
    Kind,
    clean,
    find_phrase,
    has_exactly,
    is_count,
    is_text,
    is_texts,
    starts_with,
    words_of,
)

_EDGES = " \t\n\"'`*_.,;:!?()[]{}"


def _any(value: list[str], text: str) -> bool:
    return any(find_phrase(phrase, text) for phrase in value)


def _all(value: list[str], text: str) -> bool:
    return all(find_phrase(phrase, text) for phrase in value)


def _ends_with(value: str, text: str) -> bool:
    return text.casefold().endswith(clean(value).casefold())


def _in_order(value: list[str], text: str) -> bool:
    place = 0
    for phrase in value:
        found = find_phrase(phrase, text, place)
        if found is None:
            return False
        place = found.end()
    return True


def _times(value: dict[str, Any], text: str) -> bool:
    place, times = 0, 0
    while found := find_phrase(value["text"], text, place):
        times, place = times + 1, found.end()
    return bool(times == value["count"])


def _bare(text: str) -> str:
    """Lower case, runs of blanks as one, without quotes and punctuation at the ends."""
    return " ".join(clean(text).casefold().split()).strip(_EDGES)


def _equals(value: list[str], text: str) -> bool:
    return _bare(text) in {_bare(known) for known in value}


def _excludes_chars(value: str, text: str) -> bool:
    return set(clean(value).casefold()).isdisjoint(text.casefold())


def _words_start(value: str, text: str) -> bool:
    return all(
        word.lstrip(_EDGES + "-").casefold().startswith(value.casefold()) for word in words_of(text)
    )


def _is_sequence(value: object) -> bool:
    return isinstance(value, list) and is_texts(value) and len(value) > 1


def _is_letter(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isalpha()


def _is_times(value: object) -> bool:
    return has_exactly(value, text=is_text, count=is_count)


KINDS: dict[str, Kind] = {
    "contains_any": Kind(*TEXTS, _any),
    "contains_all": Kind(*TEXTS, _all),
    "excludes": Kind(*TEXTS, lambda value, text: not _any(value, text)),
    "in_order": Kind("a list of at least two texts, none blank", _is_sequence, _in_order),
    "times": Kind('{"text": a text, "count": a positive whole number}', _is_times, _times),
    "starts_with": Kind(*TEXT, starts_with),
    "ends_with": Kind(*TEXT, _ends_with),
    "equals_any": Kind(*TEXTS, _equals),
    "excludes_chars": Kind(*TEXT, _excludes_chars),
    "words_start_with": Kind("one letter", _is_letter, _words_start),
}
