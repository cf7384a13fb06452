"""The figures of reports/prepare.json: what became of every row, by file and in all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hashtune.data.leakage import LeakReport
from hashtune.data.mixture import Mixture
from hashtune.data.sources import Loaded
from hashtune.records import Conversation, Dropped

EXAMPLES_IN_REPORT = 5

Splits = Mapping[str, Sequence[Conversation]]


def figures(
    loaded: Mapping[str, Loaded],
    splits: Splits,
    ledger: Sequence[Dropped],
    mixture: Mixture,
    leaks: Mapping[str, LeakReport],
    *,
    share_asked: float,
) -> dict[str, Any]:
    """For each file and in all: rows == sum(kept) + sum(dropped); a copy that a weight above 1
    adds is counted as repeated, not as kept."""
    of_files = {
        name: _of_file(file, splits, ledger, mixture.repeated.get(name, 0))
        for name, file in loaded.items()
    }
    dropped = Counter(row.reason for row in ledger)
    return {
        "rows": {
            "in": sum(file.rows for file in loaded.values()),
            "kept": sum(sum(of["kept"].values()) for of in of_files.values()),
            "dropped": dict(sorted(dropped.items())),
        },
        "sources": of_files,
        "splits": {name: len(rows) for name, rows in splits.items()},
        "replay": {
            "rows": mixture.replay,
            "share": mixture.replay_share,
            "share_asked": share_asked,
        },
        "leakage": {name: _of_leaks(report) for name, report in leaks.items()},
        "duplicates": _duplicates(splits),
    }


def _of_file(
    file: Loaded, splits: Splits, ledger: Sequence[Dropped], repeated: int
) -> dict[str, Any]:
    name = file.file.name
    reasons = Counter(row.reason for row in ledger if row.source == name)
    kept = {split: sum(row.source == name for row in rows) for split, rows in splits.items()}
    kept["train"] -= repeated
    return {
        "file": file.file.uri,
        "rows": file.rows,
        "kept": kept,
        "dropped": dict(sorted(reasons.items())),
        "repeated": repeated,
        "extra_fields": dict(sorted(file.extra.items())),
        "notes": file.notes,
    }


def _of_leaks(report: LeakReport) -> dict[str, Any]:
    return {
        "items": report.items,
        "exact": report.exact,
        "ngram": report.ngram,
        "near": report.near,
        "share": report.share,
        "examples": [asdict(leak) for leak in report.examples[:EXAMPLES_IN_REPORT]],
    }


def _duplicates(splits: Splits) -> dict[str, int]:
    """Conversations of the second split whose messages are those of one in the first; within a
    split, those that repeat an earlier one (in train also its copies by weight)."""
    ids = {name: [row.id.partition("#")[0] for row in rows] for name, rows in splits.items()}
    distinct = {name: set(of) for name, of in ids.items()}
    pairs = (("train", "eval"), ("train", "test"), ("eval", "test"))
    counts = {f"{a}_{b}": sum(key in distinct[a] for key in ids[b]) for a, b in pairs}
    return counts | {name: len(of) - len(distinct[name]) for name, of in ids.items()}
