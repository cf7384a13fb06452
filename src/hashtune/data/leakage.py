"""Does train hold what eval, test or a regression suite will ask?

Only user texts are compared: an item leaks when one of its texts equals a train text (normalised)
or shares a run of n words with one. Cost: linear in the words of both sides; the held-out side is
indexed, train streams past it once, whatever the number of held-out sets. Memory: of the held-out
side alone, every text and every run of n words of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hashtune.data.cleaning import normalise
from hashtune.errors import Finding

EXCERPT = 80
# Han, kana and Thai are written without spaces: each character counts as a word there
WORD = (
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[^\W\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_WORD = re.compile(WORD)


class Item(NamedTuple):
    """A held-out item or a train row: where it stands and its user texts."""

    file: str
    line: int
    texts: list[str]


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out item, the first train row that gives it away, and what they share."""

    file: str
    line: int
    train_file: str
    train_line: int
    how: Literal["exact", "ngram", "near"]
    shared: str


@dataclass(slots=True)
class LeakReport:
    """`items` held out, of which `exact`, else `ngram`, else `near` leak; `examples` in item
    order. What is nearly the same is found by near_leaks.py."""

    items: int = 0
    exact: int = 0
    ngram: int = 0
    near: int = 0
    examples: list[Leak] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Leaked items / items, in [0, 1]."""
        return self.leaked / self.items if self.items else 0.0

    @property
    def leaked(self) -> int:
        """Items that leak in one way or another."""
        return self.exact + self.ngram + self.near


class _Hit(NamedTuple):
    how: Literal["exact", "ngram"]
    row: Item
    shared: str


class _Index(NamedTuple):
    """Who holds a text or a run of words: (set name, item number) pairs."""

    exact: dict[str, list[tuple[str, int]]]
    grams: dict[tuple[str, ...], list[tuple[str, int]]]


def words(text: str) -> list[str]:
    """The words of a normalised text, punctuation left out."""
    return _WORD.findall(text)


def leakage(train: Sequence[Item], held_out: Sequence[Item], n: int) -> LeakReport:
    """Leakage of one held-out set; texts of fewer than n words are compared exactly."""
    return leakage_of_sets(train, {"": held_out}, n)[""]


def leakage_of_sets(
    train: Sequence[Item], held_out: Mapping[str, Sequence[Item]], n: int
) -> dict[str, LeakReport]:
    """Leakage of every named held-out set, in one pass over train."""
    index = _index(held_out, n)
    found: dict[tuple[str, int], _Hit] = {}
    for item in train:
        for text in map(normalise, item.texts):
            # what matched leaves the index: its owners are known, so a phrase that both sides
            # repeat costs its owners once, not once per train row
            for owner in index.exact.pop(text, ()):
                if owner not in found or found[owner].how == "ngram":
                    found[owner] = _Hit("exact", item, text)
            if index.grams.keys().isdisjoint(_grams(text, n)):
                continue
            for gram in _grams(text, n):
                for owner in index.grams.pop(gram, ()):
                    found.setdefault(owner, _Hit("ngram", item, " ".join(gram)))
    return {name: _report(name, items, found) for name, items in held_out.items()}


def _grams(text: str, n: int) -> Iterator[tuple[str, ...]]:
    tokens = words(text)
    return zip(*(tokens[start:] for start in range(n)), strict=False)


def _index(held_out: Mapping[str, Sequence[Item]], n: int) -> _Index:
    index = _Index({}, {})
    for name, items in held_out.items():
        for number, item in enumerate(items):
            owner = (name, number)
            for text in dict.fromkeys(map(normalise, item.texts)):
                index.exact.setdefault(text, []).append(owner)
                for gram in dict.fromkeys(_grams(text, n)):
                    index.grams.setdefault(gram, []).append(owner)
    return index


def _report(
    name: str,
    items: Sequence[Item],
    found: Mapping[tuple[str, int], _Hit],
) -> LeakReport:
    report = LeakReport(items=len(items))
    for number, item in enumerate(items):
        if (name, number) not in found:
            continue
        how, row, shared = found[name, number]
        if how == "exact":
            report.exact += 1
        else:
            report.ngram += 1
        excerpt = shared if len(shared) <= EXCERPT else f"{shared[:EXCERPT]}..."
        report.examples.append(Leak(item.file, item.line, row.file, row.line, how, excerpt))
    return report


def check_leakage(name: str, report: LeakReport, *, max_share: float, n: int) -> list[Finding]:
    """Nothing up to `max_share`; above it a summary and one finding per leaked item."""
    if report.share <= max_share:
        return []
    near = f", {report.near} near" if report.near else ""
    summary = Finding(
        "leakage",
        f"{report.leaked} of {report.items} items of {name} are in train "
        f"(share {report.share:.4g}, {report.exact} exact, {report.ngram} by {n} words{near}), "
        f"the limit is {max_share:.4g}",
        field="cleaning.leakage_max_share",
        fix="take these rows out of train, or give rows that belong together one `group`; a "
        "prompt frame that every row shares belongs into the system message; "
        "cleaning.leakage_ngram and leakage_max_share set what counts",
    )
    return [summary, *(_finding(name, leak) for leak in report.examples)]


def _finding(name: str, leak: Leak) -> Finding:
    how = {"exact": "equals", "ngram": "shares words with", "near": "is nearly"}[leak.how]
    message = f"{name} item {how} {leak.train_file}:{leak.train_line}: {leak.shared!r}"
    return Finding("leaked-item", message, file=leak.file, line=leak.line)
