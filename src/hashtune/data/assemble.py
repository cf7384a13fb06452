"""From loaded files to the three splits, their ledger and the figures of reports/prepare.json.

Order: the rules for single rows, duplicates, near-duplicates, split, balance, mix, then look for
leaks in what train really holds. Every row of a file is in the result or in the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hashtune.data.balance import balance
from hashtune.data.cleaning import deduplicate
from hashtune.data.figures import figures
from hashtune.data.groups import groups_apart
from hashtune.data.leakage import Item, LeakReport, check_leakage, leakage_of_sets
from hashtune.data.mixture import REPLAY, mix, number_repeats
from hashtune.data.near_duplicates import drop_near_duplicates
from hashtune.data.near_leaks import add_near_leaks
from hashtune.data.row_rules import RowRules, apply_rules
from hashtune.data.sources import Loaded, user_items
from hashtune.data.split import Split, check_fractions, split, take_first
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import Balance, NearDuplicates

HELD_OUT = ("eval", "test")


@dataclass(frozen=True, slots=True)
class Settings:
    """Plain settings of the assembly; a fraction is None for a split with a file of its own."""

    rules: RowRules
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
    leakage_max_share: float


@dataclass(slots=True)
class Prepared:
    """The result; with findings nothing may be written."""

    splits: dict[str, list[Conversation]] = field(default_factory=dict)
    ledger: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)


def assemble(
    loaded: Mapping[str, Loaded], suites: Mapping[str, Sequence[Item]], settings: Settings
) -> Prepared:
    """Build train, eval and test from the files by name (sources in order, then "replay", "eval",
    "test" where declared) and check train against eval, test and the suites."""
    prepared = Prepared(ledger=[row for file in loaded.values() for row in file.dropped])
    ruled = apply_rules(loaded, settings.rules, held_out=HELD_OUT)
    prepared.ledger += ruled.dropped
    prepared.findings += ruled.findings
    prepared.report["cleaning"] = ruled.report
    pool = _distinct(ruled.rows, settings, prepared)
    parts = _split(pool, ruled.rows, settings, prepared)
    parts.train = _balanced(parts.train, settings, prepared)
    mixture = mix(
        {name: _of(parts.train, name) for name in settings.weights},
        settings.weights,
        settings.max_rows,
        _of(parts.train, REPLAY),
        settings.replay_share if REPLAY in loaded else 0.0,
    )
    prepared.ledger += mixture.dropped
    prepared.findings += mixture.findings
    prepared.splits = {"train": mixture.rows, "eval": parts.eval, "test": parts.test}
    prepared.findings += [
        Finding("no-rows", f"0 rows remain for {name}", field=_field(name))
        for name, rows in prepared.splits.items()
        if not rows
    ]
    files = {name: file.file.uri for name, file in loaded.items()}
    leaks = _leaks(prepared, suites, files, settings)
    torn, findings = groups_apart(prepared.splits, files)
    prepared.report["groups"] = torn
    prepared.findings += findings if settings.leakage_groups == "error" else []
    prepared.ledger.sort(key=lambda row: (row.source, row.line, row.reason))
    prepared.report |= figures(
        loaded, prepared.splits, prepared.ledger, mixture, leaks, share_asked=settings.replay_share
    )
    return prepared


def _of(conversations: Sequence[Conversation], source: str) -> list[Conversation]:
    return [conversation for conversation in conversations if conversation.source == source]


def _field(split_name: str) -> str:
    return "data.sources" if split_name == "train" else f"data.{split_name}"


def _distinct(
    rows: Mapping[str, Sequence[Conversation]], settings: Settings, prepared: Prepared
) -> list[Conversation]:
    """The rows of sources and replay without those that say (nearly) what an earlier one says."""
    pool = [row for name, of in rows.items() if name not in HELD_OUT for row in of]
    if settings.deduplicate:
        pool, duplicates = deduplicate(pool)
        prepared.ledger += duplicates
    near = settings.near_duplicates
    if near.threshold is not None:
        pool, alike = drop_near_duplicates(pool, threshold=near.threshold, n=near.shingle)
        prepared.ledger += alike
    return pool


def _balanced(
    train: Sequence[Conversation], settings: Settings, prepared: Prepared
) -> list[Conversation]:
    balanced = balance(train, settings.balance)
    prepared.ledger += balanced.dropped
    prepared.findings += balanced.findings
    prepared.report["cleaning"]["classes"] = balanced.classes
    return balanced.rows


def _split(
    pool: Sequence[Conversation],
    files: Mapping[str, Sequence[Conversation]],
    settings: Settings,
    prepared: Prepared,
) -> Split:
    """Replay is all train; a held-out file stands in for its fraction."""
    fractions = {name: settings.fractions[name] or 0.0 for name in HELD_OUT}
    eval_fraction, test_fraction = fractions["eval"], fractions["test"]
    prepared.findings += check_fractions(eval_fraction=eval_fraction, test_fraction=test_fraction)
    task = [conversation for conversation in pool if conversation.source != REPLAY]
    parts = split(task, eval_fraction=eval_fraction, test_fraction=test_fraction)
    parts.train += _of(pool, REPLAY)
    for name, rows in (("eval", parts.eval), ("test", parts.test)):
        if name in files:
            rows[:] = files[name]
        kept, others = take_first(rows, settings.held_out_rows[name])
        rows[:] = number_repeats(kept)
        prepared.ledger += [Dropped(c.id, c.source, c.line, "max_rows", name) for c in others]
    return parts


def _leaks(
    prepared: Prepared,
    suites: Mapping[str, Sequence[Item]],
    files: dict[str, str],
    settings: Settings,
) -> dict[str, LeakReport]:
    held_out: dict[str, Sequence[Item]] = {
        name: user_items(prepared.splits[name], files) for name in HELD_OUT
    }
    held_out |= {f"suite_{name}": items for name, items in suites.items()}
    n = settings.leakage_ngram
    train = user_items(prepared.splits["train"], files)
    leaks = leakage_of_sets(train, held_out, n)
    near = settings.leakage_near
    if near.threshold is not None:
        add_near_leaks(leaks, train, held_out, threshold=near.threshold, n=near.shingle)
    for name, report in leaks.items():
        limit = settings.leakage_max_share
        prepared.findings += check_leakage(name, report, max_share=limit, n=n)
    return leaks
