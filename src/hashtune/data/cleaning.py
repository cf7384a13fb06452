"""What happens to bad rows and to duplicates; texts are normalised for comparison only.

No row leaves without a ledger line, and no text is changed.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hashtune import writers
from hashtune.data.schemas import Parsed
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped
from hashtune.spec.rows import Action, action


@dataclass(frozen=True, slots=True)
class Policy:
    """Bad rows stop the run ("error"), or are dropped up to a share of the file in [0, 1]; one
    action for all rules, or one by rule with a "default"."""

    on_bad_row: Action | Mapping[str, Action]
    max_drop_share: float


@dataclass(slots=True)
class Verdict:
    """What the policy makes of a file's bad rows."""

    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def apply_policy(parsed: Parsed, policy: Policy, *, source: str, shown: str) -> Verdict:
    """Refuse or drop the bad rows; a dropped row's reason is the first rule that it breaks, and a
    row is dropped only if each rule that it breaks may be."""
    dropped, stopping, every = [], [], []
    for row in parsed.bad:
        every += row.findings
        if any(action(policy.on_bad_row, finding.rule) == "error" for finding in row.findings):
            stopping += row.findings
            continue
        first = row.findings[0]
        dropped.append(Dropped(row.id, source, row.line, first.rule, first.field or ""))
    kept, gone = len(parsed.conversations), len(dropped)
    if not gone:
        return Verdict(findings=stopping)
    reasons = Counter(row.reason for row in dropped)
    counts = ", ".join(f"{reason} {reasons[reason]}" for reason in sorted(reasons))
    summary = f"kept {kept}, dropped {gone} ({counts})"
    share = gone / (kept + len(parsed.bad))
    if kept == 0:
        finding = Finding("no-rows", f"{summary}: 0 rows remain", file=shown)
    elif share > policy.max_drop_share:
        message = f"{summary}: share {share:.4g} is above {policy.max_drop_share:.4g}"
        finding = Finding("drop-share", message, file=shown, field="cleaning.max_drop_share")
    else:
        return Verdict(dropped=dropped, findings=stopping)
    return Verdict(dropped=dropped, findings=[finding, *every])


def normalise(text: str) -> str:
    """The form two texts are compared in: Unicode NFC, case folded, runs of spaces as one."""
    folded = unicodedata.normalize("NFD", text).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def content_key(conversation: Conversation) -> str:
    """Equal for conversations whose messages differ at most in what `normalise` evens out."""
    messages = [
        {**message, "content": normalise(message["content"] or "")}
        for message in conversation.messages
    ]
    return writers.sha256_bytes(writers.canonical_json(messages, indent=None).encode())


def deduplicate(
    conversations: Iterable[Conversation],
) -> tuple[list[Conversation], list[Dropped]]:
    """Keep the first of equal conversations (`content_key`); the ledger names the one kept."""
    first: dict[str, Conversation] = {}
    kept, dropped = [], []
    for conversation in conversations:
        original = first.setdefault(content_key(conversation), conversation)
        if original is conversation:
            kept.append(conversation)
            continue
        detail = f"same as {original.source}:{original.line}"
        dropped.append(
            Dropped(conversation.id, conversation.source, conversation.line, "duplicate", detail)
        )
    return kept, dropped
