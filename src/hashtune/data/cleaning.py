"""What happens to bad rows and to duplicates; texts are normalised for comparison only.

No row leaves without a ledger line, and no text is changed.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hashtune import writers
from hashtune.data.runs import runs
from hashtune.data.schemas import BadRow
from hashtune.data.table import KEY_BYTES, Rows, Table
from hashtune.errors import Finding, keep_first
from hashtune.records import REASONING, Conversation, Dropped, Message
from hashtune.spec.rows import ROW_RULES, Action, action

# soft hyphen, zero-width space, word joiner, byte order mark; marks of direction; the selectors of
# a character's look. A paste from a web page or a PDF brings them along
_UNSEEN = re.compile(
    "[\u00ad\u200b\u2060\ufeff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufe00-\ufe0f]"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Bad rows stop the run ("error"), or are dropped up to a share of the file in [0, 1]; one
    action for all rules, or one by rule with a "default"."""

    on_bad_row: Action | Mapping[str, Action]
    max_drop_share: float


@dataclass(slots=True)
class Verdict:
    """What the policy makes of a file's bad rows; `more` counts findings beyond the first by
    rule."""

    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Judge:
    """Judges the bad rows of one file one by one, and in the end the file."""

    policy: Policy
    source: str
    shown: str
    bad: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    stopping: Verdict = field(default_factory=Verdict)
    every: Verdict = field(default_factory=Verdict)

    def of_row(self, row: BadRow) -> Dropped | None:
        """Refuse or drop: a dropped row's reason is the first rule that it breaks, and a row is
        dropped only if each rule that it breaks may be."""
        self.bad += 1
        keep_first(map(_with_way_out, row.findings), self.every.findings, self.every.more)
        on_bad_row = self.policy.on_bad_row
        if any(action(on_bad_row, finding.rule) == "error" for finding in row.findings):
            keep_first(map(_with_way_out, row.findings), self.stopping.findings, self.stopping.more)
            return None
        first = row.findings[0]
        self.reasons[first.rule] += 1
        return Dropped(row.id, self.source, row.line, first.rule, first.field or "")

    def of_file(self, kept: int) -> Verdict:
        """The findings that refuse the file, if any, when `kept` rows were sound."""
        gone = self.reasons.total()
        if not gone:
            return self.stopping
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self.reasons.items()))
        summary = f"kept {kept}, dropped {gone} ({counts})"
        share, limit = gone / (kept + self.bad), self.policy.max_drop_share
        if kept == 0:
            finding = Finding("no-rows", f"{summary}: 0 rows remain", file=self.shown)
        elif share > limit:
            close = f"{share:.4g}" == f"{limit:.4g}"
            shown = [f"{value:.15g}" if close else f"{value:.4g}" for value in (share, limit)]
            message = f"{summary}: share {shown[0]} is above {shown[1]}"
            field = "cleaning.max_drop_share"
            finding = Finding("drop-share", message, file=self.shown, field=field)
        else:
            return self.stopping
        return Verdict([finding, *self.every.findings], self.every.more)


def _with_way_out(finding: Finding) -> Finding:
    """The finding, with a fix of its own or the one that every rule of a row has."""
    if finding.fix is not None or finding.rule not in ROW_RULES:
        return finding
    rule = '"null"' if finding.rule == "null" else finding.rule  # YAML's own word
    policy = f"{{default: error, {rule}: drop}}"
    return replace(
        finding, fix=f"mend the row, or leave such rows out: cleaning.on_bad_row={policy}"
    )


def normalise(text: str) -> str:
    """The form two texts are compared in: Unicode NFC, case folded, runs of spaces as one, without
    what nobody sees. The joiners of emoji, Indic scripts and Persian stay."""
    if text.isascii():  # the same, sooner
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFD", _UNSEEN.sub("", text)).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def content_key(conversation: Conversation) -> bytes:
    """128 bits, equal for conversations whose messages differ at most in what `normalise` evens
    out of contents and reasoning, and in fields that are null."""
    messages = [dict(_compared(message)) for message in conversation.messages]
    text = writers.canonical_json(messages, indent=None)
    return hashlib.sha256(text.encode()).digest()[:KEY_BYTES]


def _compared(message: Message) -> Iterator[tuple[str, Any]]:
    yield "content", normalise(message["content"] or "")
    for key, value in message.items():
        if key != "content" and value is not None:
            text = key in REASONING and isinstance(value, str)
            yield key, normalise(value) if text else value


def deduplicate(table: Table, rows: Rows) -> Rows:
    """Keep the first of the rows that were added with one `content_key`; the ledger names it.

    Returns:
        The rows that stay, in their order.
    """
    keys = table.take_keys()[rows]
    order, start = runs(keys[:, 0], keys[:, 1])
    repeated = np.flatnonzero(start < np.arange(len(start)))
    for row, first in zip(rows[order[repeated]], rows[order[start[repeated]]], strict=True):
        table.drop(row, "duplicate", f"same as {table.source(first)}:{table.line(first)}")
    stays = np.ones(len(rows), bool)
    stays[order[repeated]] = False
    return rows[stays]
