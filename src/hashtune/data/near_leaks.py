"""The third kind of leak: a held-out text that is nearly a train text, though no long run of words
is the same (a word changed here and there). Of train only numbers of its shingles are in memory
(alike.Ranked)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from hashtune.data.alike import Comparison, Meetings, ranked
from hashtune.data.leakage import Item, Leak, LeakReport
from hashtune.data.near_duplicates import shingles


class _Text(NamedTuple):
    set_name: str
    number: int
    text: str


def add_near_leaks(
    reports: Mapping[str, LeakReport],
    train: Sequence[Item],
    held_out: Mapping[str, Sequence[Item]],
    *,
    threshold: float,
    n: int,
) -> None:
    """Add to the reports every item that has a text alike to a train text and does not leak by
    exact match or words already; each with the first such train row."""
    known = {
        (name, leak.file, leak.line) for name, report in reports.items() for leak in report.examples
    }
    texts = [
        _Text(name, number, text)
        for name, items in held_out.items()
        for number, item in enumerate(items)
        if (name, item.file, item.line) not in known
        for text in item.texts
    ]
    for (name, number), (row, similarity) in _nearest(train, texts, threshold, n).items():
        item, source = held_out[name][number], train[row]
        reports[name].near += 1
        shared = f"Jaccard {similarity:.4g}"
        leak = Leak(item.file, item.line, source.file, source.line, "near", shared)
        reports[name].examples.append(leak)
    for name, report in reports.items():
        order = {(item.file, item.line): number for number, item in enumerate(held_out[name])}
        report.examples.sort(key=lambda leak: order[leak.file, leak.line])


def _nearest(
    train: Sequence[Item], texts: Sequence[_Text], threshold: float, n: int
) -> dict[tuple[str, int], tuple[int, float]]:
    """Held-out item -> the first train row that is alike to one of its texts, and how much."""
    rows: list[int] = []  # of every train text
    sets = chain((of.text for of in texts), _texts(train, rows))
    numbered = ranked(shingles(text, n) for text in sets)
    comparison, meetings = Comparison(numbered), Meetings(numbered, threshold)
    for place in range(len(texts)):
        meetings.add(place)
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for number, row in enumerate(rows, start=len(texts)):
        others = [other for other in meetings.met(number) if texts[other][:2] not in found]
        for other, similarity in comparison.all(number, others, threshold):
            found.setdefault(texts[other][:2], (row, similarity))
    return found


def _texts(items: Iterable[Item], rows: list[int]) -> Iterator[str]:
    """All user texts; the number of each one's item is added to `rows`."""
    for row, item in enumerate(items):
        for text in item.texts:
            rows.append(row)
            yield text
