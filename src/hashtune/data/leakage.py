"""Does train hold what eval, test or a regression suite will ask, or answers that they expect?

An item leaks when one of its questions, or an answer that is evidence (leak_index.py), equals a
text of a train row (normalised) or shares a run of n words with one, or when a question of fewer
words stands whole in one (short_questions.py). The texts of a train row are its user, system and
assistant texts, tool results and tool arguments. Cost: linear in the words of both sides; the
held-out side is indexed, train streams past it once, whatever the number of held-out sets. Memory:
of the held-out side alone, every text and every run of n words of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hashtune.data.leak_index import USER, Hit, Item, What, hits, indexes
from hashtune.data.short_questions import Owner
from hashtune.errors import Finding

__all__ = ["Item", "Leak", "LeakReport", "check_leakage", "leakage"]
EXCERPT = 80


@dataclass(frozen=True, slots=True)
class Leak:
    """A held-out item, the first train row that gives it away, and what they share."""

    file: str
    line: int
    train_file: str
    train_line: int
    how: Literal["exact", "ngram", "near"]
    shared: str
    what: What = "question"
    where: str = USER  # the kind of train text


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
    def kinds(self) -> dict[str, int]:
        """Leaked items by what is found in which kind of train text, sorted by name."""
        return dict(
            sorted(Counter(f"{leak.what} in {leak.where}" for leak in self.examples).items())
        )

    @property
    def share(self) -> float:
        """Leaked items / items, in [0, 1]."""
        return self.leaked / self.items if self.items else 0.0

    @property
    def leaked(self) -> int:
        """Items that leak in one way or another."""
        return self.exact + self.ngram + self.near


def leakage(train: Sequence[Item], held_out: Sequence[Item], n: int) -> LeakReport:
    """Leakage of one held-out set."""
    return leakage_of_sets(train, {"": held_out}, n)[""]


def leakage_of_sets(
    train: Sequence[Item], held_out: Mapping[str, Sequence[Item]], n: int
) -> dict[str, LeakReport]:
    """Leakage of every named held-out set, in one pass over train."""
    held = indexes(held_out, n)
    found: dict[Owner, Hit] = {}
    for item in train:
        for owner, hit in hits(item, held, n, take=True):
            if owner not in found or (hit.how == "exact" and found[owner].how == "ngram"):
                found[owner] = hit
    return {name: _report(name, items, found) for name, items in held_out.items()}


def leaking_rows(
    train: Sequence[Item], held_out: Mapping[str, Sequence[Item]], n: int
) -> Iterator[tuple[int, str]]:
    """All train rows that hold something of the held-out sets: their places, and the first
    thing."""
    held = indexes(held_out, n)
    for place, item in enumerate(train):
        for (name, number), hit in hits(item, held, n, take=False):
            of = held_out[name][number]
            yield place, f"{hit.what} of {of.file}:{of.line} in {hit.where} ({hit.how})"
            break


def _report(
    name: str,
    items: Sequence[Item],
    found: Mapping[Owner, Hit],
) -> LeakReport:
    report = LeakReport(items=len(items))
    for number, item in enumerate(items):
        if (name, number) not in found:
            continue
        how, row, shared, what, where = found[name, number]
        if how == "exact":
            report.exact += 1
        else:
            report.ngram += 1
        excerpt = shared if len(shared) <= EXCERPT else f"{shared[:EXCERPT]}..."
        leak = Leak(item.file, item.line, row.file, row.line, how, excerpt, what, where)
        report.examples.append(leak)
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
        fix="cleaning.leakage_action: drop takes these rows out of train (counted, and named in "
        "the ledger), or give rows that belong together one `group`; a prompt frame that every row "
        "shares belongs into the system message; where the shared words are common phrases, a "
        "longer cleaning.leakage_ngram; leakage_max_share lets a share pass",
    )
    return [summary, *(_finding(name, leak) for leak in report.examples)]


def _finding(name: str, leak: Leak) -> Finding:
    how = {"exact": "equals", "ngram": "shares words with", "near": "is nearly"}[leak.how]
    whose = "item" if leak.what == "question" else "item's answer"
    text = "" if leak.where == USER else f"the {leak.where} text of "
    message = f"{name} {whose} {how} {text}{leak.train_file}:{leak.train_line}: {leak.shared!r}"
    return Finding("leaked-item", message, file=leak.file, line=leak.line)
