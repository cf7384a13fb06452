"""The rules that each row meets alone on its way into the table: declared text forms, pattern
lists, limits.

Texts change in every file but the replay answers, which stay as the base wrote them. Patterns are
searched in all that may be trained, limits hold for the sources. Held-out files lose no row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hashtune.data.cleaning import content_key
from hashtune.data.filters import filter_rows
from hashtune.data.mixture import REPLAY
from hashtune.data.normalisation import change_conversations
from hashtune.data.pattern_search import search
from hashtune.data.patterns import Pattern
from hashtune.data.sources import DataFile
from hashtune.data.table import Table
from hashtune.errors import Finding, keep_first
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Filters, Normalise

HELD_OUT = ("eval", "test")


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules as the spec declares them; the patterns are loaded."""

    normalise: Normalise
    filters: Filters
    patterns: Sequence[Pattern]


@dataclass(slots=True)
class Ruled:
    """The rows of all files after the rules; `report` counts changed rows and matches, `more`
    counts findings beyond the first by rule; `given_up` names patterns that took too long."""

    table: Table
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    given_up: set[str] = field(default_factory=set)
    report: dict[str, Any] = field(default_factory=lambda: {"normalised": {}, "patterns": {}})


class RuledFile:
    """Takes the rows of one file (sources.Sink) through the rules into the table."""

    def __init__(self, ruled: Ruled, rules: RowRules, file: DataFile) -> None:
        self._ruled, self._rules, self._file = ruled, rules, file
        self._changed: Counter[str] = Counter()
        self._matched: Counter[str] = Counter()

    def drop(self, row: Dropped) -> None:
        """Take a row that is dropped already."""
        self._ruled.table.add_dropped(row)

    def keep(self, row: Conversation) -> None:
        """Apply the rules to a row and take what becomes of it."""
        rows, dropped = [row], []
        if self._file.name != REPLAY:
            rows, changed = change_conversations(rows, self._rules.normalise)
            self._changed += changed
        if self._file.name in HELD_OUT:
            self._ruled.table.add(rows[0])
            return
        given_up = self._ruled.given_up
        searched = search(rows, self._rules.patterns, shown=self._file.uri, given_up=given_up)
        self._matched += searched.counts
        keep_first(searched.findings, self._ruled.findings, self._ruled.more)
        rows, dropped = searched.kept, searched.dropped
        if self._file.name != REPLAY:
            rows, filtered = filter_rows(rows, self._rules.filters)
            dropped += filtered
        for kept in rows:
            self._ruled.table.add(kept, content_key(kept))
        for gone in dropped:
            self.drop(gone)

    def close(self) -> None:
        """Report what the rules did to this file."""
        for name, counts in (("normalised", self._changed), ("patterns", self._matched)):
            if counts:
                self._ruled.report[name][self._file.name] = dict(sorted(counts.items()))
