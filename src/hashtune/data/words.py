"""What counts as a word when texts are compared: the same for runs of words and for shingles.

Python's \\w knows no combining marks, so that a vowel sign would end a word of Devanagari, Tamil
or Arabic and leave letters that many words share; here a word keeps its marks.
"""

import re
import unicodedata
from functools import cache

# Thai, Lao, Myanmar, Khmer, kana and Han are written without spaces: each character counts as a
# word there, with the marks on it
SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\uff66-\uff9f\U00020000-\U0003ffff"
)


@cache
def _marks() -> str:
    """All combining marks as the inside of a character class."""
    ranges: list[list[int]] = []
    for code in (*range(0x20000), *range(0xE0100, 0xE01F0)):  # no others have any
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


_LETTERS = rf"[^\W{SPACELESS}]"
WORD = rf"{_LETTERS}+(?:[{_marks()}]+{_LETTERS}*)*|(?!\W)[{SPACELESS}][{_marks()}]*"
# without them "12 + 30" would be "12 - 30"
SIGNS = frozenset("+-*/%^=<>|\u00d7\u00f7\u2212\u00b1\u221a")
_WORD = re.compile(WORD)
_WORD_OR_SIGN = re.compile(rf"{WORD}|[{re.escape(''.join(sorted(SIGNS)))}]")


def words(text: str) -> list[str]:
    """The words of a normalised text, punctuation left out."""
    return _WORD.findall(text)


def words_and_signs(text: str) -> list[str]:
    """The words of a normalised text and the signs of arithmetic between them."""
    return _WORD_OR_SIGN.findall(text)


def without_signs(tokens: list[str]) -> list[str]:
    """The words alone."""
    if SIGNS.isdisjoint(tokens):
        return tokens
    return [token for token in tokens if token not in SIGNS]
