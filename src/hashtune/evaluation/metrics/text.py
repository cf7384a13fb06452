"""Metrics of whole texts: equal, equal but for trifles, or overlapping."""

import re
import string
from collections import Counter

_WORD = re.compile(r"\w+|[^\w\s]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SIGNS = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Case folded, runs of blanks as one space, outer blanks removed."""
    return " ".join(text.split()).casefold()


def exact_match(answer: str, reference: str) -> float:
    """1.0 if both texts are equal once normalised."""
    return float(normalise(answer) == normalise(reference))


def normalised_match(answer: str, reference: str) -> float:
    """1.0 if both texts are equal without case, ASCII punctuation, English articles and runs of
    blanks, as SQuAD's evaluation compares them (Rajpurkar et al., EMNLP 2016)."""
    return float(bare(answer) == bare(reference))


def bare(text: str) -> str:
    """Lower case, then without ASCII punctuation, a, an and the; blanks as `normalise`."""
    return normalise(_ARTICLES.sub(" ", text.lower().translate(_SIGNS)))


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over words and signs, each counted as often as it
    occurs; two empty texts agree."""
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return float(given == wanted)
    shared = (given & wanted).total()
    return 2 * shared / (given.total() + wanted.total())


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))
