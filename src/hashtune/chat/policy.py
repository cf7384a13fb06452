"""What becomes of a row that its template or tokenizer does not take: refused or dropped, by rule.

Only a finding about the row can be dropped with it. What says that the template, the tokenizer or
our own proof is at fault (spec.rows.TALK_RULES does not name it) stops the stage in any case.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.chat.over_length import WHOLE
from hashtune.errors import Finding, Findings
from hashtune.records import Dropped
from hashtune.spec.rows import TALK_RULES, Action, action

OnBadRow = Action | Mapping[str, Action]
LIMIT = "cleaning.max_drop_share"


def may_drop(findings: Sequence[Finding], on_bad_row: OnBadRow) -> bool:
    """Whether a row with these findings is dropped: only if each rule that it breaks may be."""
    return all(
        _about_row(finding) and action(on_bad_row, finding.rule) == "drop" for finding in findings
    )


def _about_row(finding: Finding) -> bool:
    return finding.rule in TALK_RULES and not (finding.field or "").startswith("tokenizer.")


def dropped_row(row: Mapping[str, Any], findings: Sequence[Finding]) -> Dropped:
    """The ledger line of a row: the first rule that it breaks, and where."""
    first = findings[0]
    return Dropped(row["id"], row["source"], row["line"], first.rule, first.field or "")


def share_findings(
    split: str, rows: int, dropped: Mapping[str, int], max_drop_share: float
) -> list[Finding]:
    """The finding that too many of `rows` broke a rule; over-long ones have their own policy.

    Args:
        split: its name.
        rows: number of rows read.
        dropped: dropped rows by reason.
        max_drop_share: share of the rows in [0, 1].
    """
    reasons = {reason: count for reason, count in sorted(dropped.items()) if reason != WHOLE}
    gone = sum(reasons.values())
    if not gone or gone / rows <= max_drop_share:
        return []
    counts = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    message = (
        f"{split}: {gone} of {rows} rows dropped ({counts}): share {gone / rows:.4g} is above "
        f"{max_drop_share:.4g}"
    )
    fix = f"correct the rows (the first are listed here), or raise {LIMIT}"
    return [Finding("drop-share", message, field=LIMIT, fix=fix)]


def together(over: Sequence[Finding], refused: Findings, dismissed: Findings) -> Findings:
    """What refuses a split with too many dropped rows: the share, then the rows' own findings."""
    every = Findings()
    every.add(over)
    for found in (refused, dismissed):
        every.add(found.shown, found.more)
    return every


def nothing_left(split: str, rows: int, dropped: Mapping[str, int]) -> Finding:
    """The finding that none of `rows` is left, with what became of them (rows by reason)."""
    lost = [f"{dropped.get(WHOLE, 0)} over-long"]
    lost += [f"{count} {reason}" for reason, count in sorted(dropped.items()) if reason != WHOLE]
    said = f"no example of {split} is left: {rows} in, {', '.join(lost)}"
    fix = "raise data.max_seq_len" if dropped.get(WHOLE) else "correct the rows"
    return Finding("nothing-left", said, fix=fix)
