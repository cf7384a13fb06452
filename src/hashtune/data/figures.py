"""The figures of reports/prepare.json: what became of every row, by file and in all."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from hashtune.data.leakage import LeakReport
from hashtune.data.mixture import Mixture
from hashtune.data.runs import are_in
from hashtune.data.sources import Loaded
from hashtune.data.table import Rows, Table

EXAMPLES_IN_REPORT = 5

Splits = Mapping[str, Rows]


def figures(
    loaded: Mapping[str, Loaded],
    table: Table,
    splits: Splits,
    mixture: Mixture,
    leaks: Mapping[str, LeakReport],
    *,
    share_asked: float,
) -> dict[str, Any]:
    """For each file and in all: rows == sum(kept) + sum(dropped); a copy that a weight above 1
    adds is counted as repeated, not as kept."""
    of_files = {
        name: _of_file(file, table, splits, mixture.repeated.get(name, 0))
        for name, file in loaded.items()
    }
    return {
        "rows": {
            "in": sum(file.rows for file in loaded.values()),
            "kept": sum(sum(of["kept"].values()) for of in of_files.values()),
            "dropped": table.dropped(),
        },
        "sources": of_files,
        "splits": {name: len(rows) for name, rows in splits.items()},
        "replay": {
            "rows": mixture.replay,
            "share": mixture.replay_share,
            "share_asked": share_asked,
        },
        "leakage": {name: _of_leaks(report) for name, report in leaks.items()},
        "duplicates": _duplicates(table, splits),
    }


def _of_file(file: Loaded, table: Table, splits: Splits, repeated: int) -> dict[str, Any]:
    name = file.file.name
    kept = {split: len(table.of(rows, name)) for split, rows in splits.items()}
    kept["train"] -= repeated
    return {
        "file": file.file.uri,
        "rows": file.rows,
        "kept": kept,
        "dropped": table.dropped(name),
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
        "kinds": report.kinds,
        "share": report.share,
        "examples": [asdict(leak) for leak in report.examples[:EXAMPLES_IN_REPORT]],
    }


def _duplicates(table: Table, splits: Splits) -> dict[str, int]:
    """Conversations of the second split whose messages are those of one in the first; within a
    split, those that repeat an earlier one (in train also its copies by weight)."""
    ids = {name: table.columns.id[rows] for name, rows in splits.items()}
    distinct = {name: np.unique(of) for name, of in ids.items()}
    pairs = (("train", "eval"), ("train", "test"), ("eval", "test"))
    counts = {f"{a}_{b}": int(are_in(ids[b], distinct[a]).sum()) for a, b in pairs}
    return counts | {name: len(of) - len(distinct[name]) for name, of in ids.items()}
