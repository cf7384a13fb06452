"""Rows of one `group` (one customer, one document) in two splits: leakage that no text shows.

Split by hash keeps groups together; eval and test files of their own may break them up.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hashtune.data.runs import are_in
from hashtune.data.table import NO_GROUP, Rows, Table
from hashtune.errors import KEPT, Finding

PAIRS = (("train", "eval"), ("train", "test"), ("eval", "test"))
RULE = "group-leak"


def groups_apart(
    table: Table, splits: Mapping[str, Rows], files: Mapping[str, str]
) -> tuple[dict[str, int], list[Finding], Counter[str]]:
    """Rows of the second split whose group is in the first, by pair, and a finding for each, those
    beyond the first only counted by rule; `files` maps source names to files."""
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    for one, other in PAIRS:
        groups = table.columns.group[splits[one]]
        theirs = table.columns.group[splits[other]]
        torn = splits[other][(theirs != NO_GROUP) & are_in(theirs, np.unique(groups))]
        counts[f"{one}_{other}"] = len(torn)
        for row in torn[: KEPT - len(findings)]:
            first = splits[one][np.argmax(groups == table.columns.group[row])]
            found = table.conversation(row)
            message = f"{other} row of group {found.group!r}, which is in {one} too: "
            message += f"{files[table.source(first)]}:{table.line(first)}"
            findings.append(
                Finding(RULE, message, file=files[found.source], line=found.line, field="group")
            )
    total = sum(counts.values())
    more = Counter({RULE: total - len(findings)})
    if findings:
        findings[0:0] = [
            Finding(
                RULE,
                f"{total} rows share a group with a row of another split",
                field="cleaning.leakage_groups",
                fix="move each group into one file, or set cleaning.leakage_groups to report",
            )
        ]
    return counts, findings, more
