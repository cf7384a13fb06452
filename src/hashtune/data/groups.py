"""Rows of one `group` (one customer, one document) in two splits: leakage that no text shows.

Split by hash keeps groups together; eval and test files of their own may break them up.
"""

from collections.abc import Mapping, Sequence

from hashtune.errors import Finding
from hashtune.records import Conversation

PAIRS = (("train", "eval"), ("train", "test"), ("eval", "test"))


def groups_apart(
    splits: Mapping[str, Sequence[Conversation]], files: Mapping[str, str]
) -> tuple[dict[str, int], list[Finding]]:
    """Rows of the second split whose group is in the first, by pair, and a finding for each;
    `files` maps source names to files."""
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    for one, other in PAIRS:
        first: dict[str, Conversation] = {}
        for row in splits[one]:
            if row.group is not None:
                first.setdefault(row.group, row)
        torn = [row for row in splits[other] if row.group is not None and row.group in first]
        counts[f"{one}_{other}"] = len(torn)
        for row in torn:
            there = first[row.group or ""]
            message = f"{other} row of group {row.group!r}, which is in {one} too: "
            message += f"{files[there.source]}:{there.line}"
            findings.append(
                Finding("group-leak", message, file=files[row.source], line=row.line, field="group")
            )
    if findings:
        findings[0:0] = [
            Finding(
                "group-leak",
                f"{len(findings)} rows share a group with a row of another split",
                field="cleaning.leakage_groups",
                fix="move each group into one file, or set cleaning.leakage_groups to report",
            )
        ]
    return counts, findings
