"""Figures over all items of a closed set of labels: macro-F1, and answers outside of the set.

The labels are those of the references.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean


def macro_f1(answers: Sequence[str], references: Sequence[str]) -> float:
    """Mean over the labels of 2 TP / (2 TP + FP + FN), so that a rare label weighs as much as a
    frequent one. An answer outside of the set is a miss of its item's label and of no other.

    Raises:
        ValueError: no items, or unequal lengths.
    """
    if not references:
        raise ValueError("macro-F1 needs at least one item")
    pairs = list(zip(answers, references, strict=True))
    hits = Counter(reference for answer, reference in pairs if answer == reference)
    given, wanted = Counter(answers), Counter(references)
    return fmean(2 * hits[label] / (given[label] + wanted[label]) for label in sorted(wanted))


def outside_share(answers: Sequence[str], references: Sequence[str]) -> float:
    """Share of the answers that are no label of any reference: what a classifier made up.

    Raises:
        ValueError: no answers.
    """
    if not answers:
        raise ValueError("a share needs at least one answer")
    labels = set(references)
    return fmean(float(answer not in labels) for answer in answers)
