"""The rules that each row meets alone, before any two rows are compared: declared text forms,
pattern lists, limits.

Texts change in every file but the replay answers, which stay as the base wrote them. Patterns are
searched in all that may be trained, limits hold for the sources. Held-out files lose no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hashtune.data.filters import filter_rows
from hashtune.data.mixture import REPLAY
from hashtune.data.normalisation import change_conversations
from hashtune.data.patterns import Pattern, search
from hashtune.data.sources import Loaded
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Filters, Normalise


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules as the spec declares them; the patterns are loaded."""

    normalise: Normalise
    filters: Filters
    patterns: Sequence[Pattern]


@dataclass(slots=True)
class Ruled:
    """What is left of each file, by name; `report` counts changed rows and matches."""

    rows: dict[str, list[Conversation]] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=lambda: {"normalised": {}, "patterns": {}})


def apply_rules(loaded: Mapping[str, Loaded], rules: RowRules, *, held_out: Sequence[str]) -> Ruled:
    """Apply the rules to every file; the files themselves stay as they are."""
    ruled = Ruled()
    for name, file in loaded.items():
        rows = file.conversations
        if name != REPLAY:
            rows, changed = change_conversations(rows, rules.normalise)
            if changed:
                ruled.report["normalised"][name] = dict(sorted(changed.items()))
        if name not in held_out:
            searched = search(rows, rules.patterns, shown=file.file.uri)
            rows = searched.kept
            ruled.dropped += searched.dropped
            ruled.findings += searched.findings
            if searched.counts:
                ruled.report["patterns"][name] = dict(sorted(searched.counts.items()))
            if name != REPLAY:
                rows, dropped = filter_rows(rows, rules.filters)
                ruled.dropped += dropped
        ruled.rows[name] = rows
    return ruled
