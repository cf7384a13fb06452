"""From the table of all rows to the three splits, their ledger and the figures of
reports/prepare.json.

Order: duplicates, near-duplicates, split, train rows that leak (where they are dropped), balance,
mix, then look for leaks in what train really
holds (the rules for single rows were met on the way into the table). Every row of a file is in the
result or in the ledger.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hashtune.data.balance import balance
from hashtune.data.cleaning import deduplicate
from hashtune.data.figures import figures
from hashtune.data.groups import groups_apart
from hashtune.data.leak_index import Item
from hashtune.data.leak_search import LeakSearch
from hashtune.data.leakage import check_leakage
from hashtune.data.mixture import REPLAY, Mixture, mix, number_repeats
from hashtune.data.near_duplicates import drop_near_duplicates
from hashtune.data.row_rules import HELD_OUT, Ruled
from hashtune.data.sources import Loaded
from hashtune.data.split import Split, check_fractions, split, take_first
from hashtune.data.table import Chosen, Rows, Table
from hashtune.errors import Finding
from hashtune.spec.schema import Balance, NearDuplicates


@dataclass(frozen=True, slots=True)
class Settings:
    """Plain settings of the assembly; a fraction is None for a split with a file of its own."""

    deduplicate: bool
    near_duplicates: NearDuplicates
    balance: Balance
    weights: Mapping[str, float]
    max_rows: Mapping[str, int | None]
    replay_share: float
    fractions: Mapping[str, float | None]
    held_out_rows: Mapping[str, int | None]
    leakage_ngram: int
    leakage_near: NearDuplicates
    leakage_groups: Literal["error", "report"]
    leakage_action: Literal["error", "drop"]
    leakage_max_share: float


@dataclass(slots=True)
class Prepared:
    """The result; with findings nothing may be written. `more` counts findings beyond the first by
    rule."""

    table: Table
    splits: dict[str, Chosen] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    report: dict[str, Any] = field(default_factory=dict)

    def written(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a split as they are written, one by one."""
        rows, times = self.splits[name]
        return (self.table.written(*row) for row in zip(rows, times, strict=True))


def assemble(
    loaded: Mapping[str, Loaded],
    ruled: Ruled,
    suites: Mapping[str, Sequence[Item]],
    settings: Settings,
) -> Prepared:
    """Build train, eval and test from the table's rows, read from the files by name (sources in
    order, then "replay", "eval", "test" where declared), and check train against eval, test and
    the suites."""
    table = ruled.table
    prepared = Prepared(table, findings=ruled.findings, more=ruled.more)
    prepared.report["cleaning"] = ruled.report
    files = {name: file.file.uri for name, file in loaded.items()}
    search = LeakSearch(table, files, suites, settings.leakage_ngram)
    mixture = _splits(prepared, loaded, settings, search)
    prepared.findings += [
        Finding("no-rows", f"0 rows remain for {name}", field=_field(name), fix=_fix(name, table))
        for name, chosen in prepared.splits.items()
        if not len(chosen.rows)
    ]
    leaks = search.reports(prepared.splits, settings.leakage_near)
    for name, report in leaks.items():
        limit = settings.leakage_max_share
        found = check_leakage(name, report, max_share=limit, n=settings.leakage_ngram)
        prepared.findings += found
    rows = {name: chosen.rows for name, chosen in prepared.splits.items()}
    _groups(prepared, rows, files, settings)
    prepared.report |= figures(
        loaded, table, rows, mixture, leaks, share_asked=settings.replay_share
    )
    return prepared


def _splits(
    prepared: Prepared, loaded: Mapping[str, Loaded], settings: Settings, search: LeakSearch
) -> Mixture:
    """Choose the rows of every split; how train was mixed."""
    table = prepared.table
    parts = _split(_distinct(table, settings), loaded, settings, prepared)
    held_out = {
        name: _held_out(name, rows, settings, prepared)
        for name, rows in (("eval", parts.eval), ("test", parts.test))
    }
    train = parts.train
    if settings.leakage_action == "drop":
        train = search.without_leaks(train, held_out)
    train = _balanced(train, settings, prepared)
    mixture = mix(
        table,
        {name: table.of(train, name) for name in settings.weights},
        weights=settings.weights,
        max_rows=settings.max_rows,
        replay=table.of(train, REPLAY),
        share=settings.replay_share if REPLAY in loaded else 0.0,
    )
    prepared.findings += mixture.findings
    prepared.splits = {"train": mixture.rows, **held_out}
    return mixture


def _field(split_name: str) -> str:
    return "data.sources" if split_name == "train" else f"data.{split_name}"


def _fix(split_name: str, table: Table) -> str:
    if split_name == "train":
        gone = ", ".join(f"{reason} {count}" for reason, count in table.dropped().items())
        return f"loosen what drops rows ({gone or 'nothing did'}), or give data.sources more"
    return (
        f"give data.{split_name} a file of its own, or a larger fraction; rows of one `group` are "
        "split off together or not at all"
    )


def _distinct(table: Table, settings: Settings) -> Rows:
    """The rows of sources and replay without those that say (nearly) what an earlier one says."""
    pool = table.not_of(table.kept(), *HELD_OUT)
    if settings.deduplicate:
        pool = deduplicate(table, pool)
    near = settings.near_duplicates
    if near.threshold is not None:
        pool = drop_near_duplicates(table, pool, threshold=near.threshold, n=near.shingle)
    return pool


def _balanced(train: Rows, settings: Settings, prepared: Prepared) -> Rows:
    balanced = balance(prepared.table, train, settings.balance)
    prepared.findings += balanced.findings
    prepared.report["cleaning"]["classes"] = balanced.classes
    return balanced.rows


def _split(
    pool: Rows, loaded: Mapping[str, Loaded], settings: Settings, prepared: Prepared
) -> Split:
    """Replay is all train; a held-out file stands in for its fraction."""
    table = prepared.table
    fractions = {name: settings.fractions[name] or 0.0 for name in HELD_OUT}
    eval_fraction, test_fraction = fractions["eval"], fractions["test"]
    prepared.findings += check_fractions(eval_fraction=eval_fraction, test_fraction=test_fraction)
    task = table.not_of(pool, REPLAY)
    parts = split(table, task, eval_fraction=eval_fraction, test_fraction=test_fraction)
    files = {name: table.of(table.kept(), name) for name in HELD_OUT if name in loaded}
    train = np.concatenate([parts.train, table.of(pool, REPLAY)])
    return parts._replace(train=train, **files)


def _held_out(name: str, rows: Rows, settings: Settings, prepared: Prepared) -> Chosen:
    kept, others = take_first(prepared.table, rows, settings.held_out_rows[name])
    prepared.table.drop(others, "max_rows", name)
    return number_repeats(prepared.table, kept)


def _groups(
    prepared: Prepared,
    rows: Mapping[str, Rows],
    files: Mapping[str, str],
    settings: Settings,
) -> None:
    prepared.report["groups"], findings, more = groups_apart(prepared.table, rows, files)
    if settings.leakage_groups == "error":
        prepared.findings += findings
        prepared.more += more
