"""Kinds of rule about how long an answer is: characters, words, sentences, lines, paragraphs."""

import re

from hashtune.evaluation.kinds.base import COUNT, FLAG, Kind, lines_of, words_of

_ABBREVIATIONS = re.compile(r"\b(?:mr|mrs|ms|dr|st|vs|e\.g|i\.e|u\.s)\.", re.IGNORECASE)
_LIST_NUMBER = re.compile(r"(?m)^[ \t]*\d{1,3}[.)][ \t]")
_CLOSERS = "\"')\\]\u300d\u300f"
_WIDE = "\u3002\uff01\uff1f"  # the full stops of Chinese and Japanese: no blank follows them
_BREAK = re.compile(
    rf"(?<![.!?\u2026])[.!?\u2026]+[{_CLOSERS}]*(?:\s+|$)|(?<![{_WIDE}])[{_WIDE}]+[{_CLOSERS}]*\s*"
)
_END = re.compile(rf"[.!?\u2026{_WIDE}][{_CLOSERS}]*$")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


def count_sentences(text: str) -> int:
    """Runs of text between ends of sentences; what follows the last one counts too."""
    plain = _LIST_NUMBER.sub("", _ABBREVIATIONS.sub("abbreviation", text))
    return sum(bool(words_of(part)) for part in _BREAK.split(plain))


def _one_sentence(_: object, text: str) -> bool:
    whole = len(text.splitlines()) == 1 and _END.search(text[-20:]) is not None
    return whole and count_sentences(text) == 1


def _paragraphs(value: int, text: str) -> bool:
    return sum(bool(part.strip()) for part in _PARAGRAPH.split(text)) == value


KINDS: dict[str, Kind] = {
    "max_chars": Kind(*COUNT, lambda value, text: len(text) <= value),
    "min_chars": Kind(*COUNT, lambda value, text: len(text) >= value),
    "words": Kind(*COUNT, lambda value, text: len(words_of(text)) == value),
    "max_words": Kind(*COUNT, lambda value, text: len(words_of(text)) <= value),
    "min_words": Kind(*COUNT, lambda value, text: len(words_of(text)) >= value),
    "one_sentence": Kind(*FLAG, _one_sentence),
    "sentences": Kind(*COUNT, lambda value, text: count_sentences(text) == value),
    "max_sentences": Kind(*COUNT, lambda value, text: count_sentences(text) <= value),
    "lines": Kind(*COUNT, lambda value, text: len(lines_of(text)) == value),
    "paragraphs": Kind(*COUNT, _paragraphs),
}
