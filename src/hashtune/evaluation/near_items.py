"""Suite items that ask nearly the same, and how many come from one pattern.

An item that repeats another one counts the same ability twice: the suite looks larger than it is,
and its intervals narrower. Prompts are short, so pairs of words are compared instead of the longer
runs that serve for training rows.
"""

import re
from collections import Counter
from collections.abc import Sequence

from hashtune.data.alike import first_alike
from hashtune.data.near_duplicates import shingles
from hashtune.evaluation.suites import SuiteItem

THRESHOLD = 0.75  # Jaccard similarity; of one word changed in nine, 10 pairs, 0.67 stays
SHINGLE = 2  # words
OPENING = 4  # words and signs that tell a pattern

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")


def near_pairs(
    items: Sequence[SuiteItem], *, threshold: float = THRESHOLD
) -> list[tuple[SuiteItem, SuiteItem, float]]:
    """(item, the first earlier item it is alike to, Jaccard similarity), in the items' order.

    What is compared is what is asked: the prompt or question, not the choices.
    """
    alike = first_alike([shingles(item.prompt, SHINGLE) for item in items], threshold)
    return [(items[row], items[first], found) for row, (first, found) in sorted(alike.items())]


def pattern(item: SuiteItem) -> str:
    """Slice and opening of an item: its first words in lower case, numbers as one sign.

        What is 20 minus 8? -> "arithmetic: what is # minus"

    Items of one pattern are filled into one frame; they stand or fall together.
    """
    tokens = _WORD_OR_SIGN.findall(item.prompt.lower())
    opening = ["#" if token.isdigit() else token for token in tokens[:OPENING]]
    return f"{item.slice}: {' '.join(opening)}"


def patterns(items: Sequence[SuiteItem]) -> Counter[str]:
    """How many items each pattern has."""
    return Counter(map(pattern, items))
