"""The number that a text ends in: answers of word problems, as GSM8K writes them.

The number behind the last "####" counts, else the last one of the text. 1,234.50 and $1234.5 are
the same number. Source of the form: Cobbe et al., Training Verifiers to Solve Math Word Problems,
2021 (arXiv 2110.14168).
"""

import re
from decimal import Decimal

MARK = "####"
_NUMBER = re.compile(
    r"""
    # behind a word, number or bracket it subtracts, and "- 18" is an item of a list
    (?:(?<![\w.,)\]%])(?<![\d)\]%][ \t])(?P<sign>[-+]|\u2212\s?))?
    [$\u20ac\u00a3]?
    (?<![\d.])
    (?P<digits>
        \d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?      # thousands in groups
      | \d+(?:\.\d+)?
      | \.\d+
    )
    """,
    re.VERBOSE | re.ASCII,
)
DIGITS = 300  # longer ones are no answer, and would cost time


def last_number(text: str) -> Decimal | None:
    """The number a text ends in, or None."""
    _, mark, tail = text.rpartition(MARK)
    found = list(_NUMBER.finditer(tail)) if mark else []
    if found:  # the mark is followed by the answer; what comes behind that is talk
        return _value(found[0])
    found = list(_NUMBER.finditer(text))
    return _value(found[-1]) if found else None


def numeric_answer(answer: str, reference: str) -> float:
    """1.0 if both texts end in the same number; 0.0 where either has none."""
    given, wanted = last_number(answer), last_number(reference)
    return float(given is not None and given == wanted)


def _value(match: "re.Match[str]") -> Decimal | None:
    digits = match["digits"].replace(",", "")
    if len(digits) > DIGITS:
        return None
    negative = (match["sign"] or "").strip() in ("-", "\u2212")
    return -Decimal(digits) if negative else Decimal(digits)
