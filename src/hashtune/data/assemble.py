"""From loaded files to the three splits, their ledger and the figures of reports/prepare.json.

Order: deduplicate, split, mix, then look for leaks in what train really holds. Every row of a file
is in the result or in the ledger.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hashtune.data.cleaning import deduplicate
from hashtune.data.leakage import Item, LeakReport, check_leakage, leakage_of_sets
from hashtune.data.mixture import REPLAY, Mixture, mix, number_repeats
from hashtune.data.sources import Loaded, user_items
from hashtune.data.split import Split, check_fractions, split, take_first
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped

EXAMPLES_IN_REPORT = 5
HELD_OUT = ("eval", "test")


@dataclass(frozen=True, slots=True)
class Settings:
    """Plain settings of the assembly; a fraction is None for a split with a file of its own."""

    deduplicate: bool
    weights: Mapping[str, float]
    max_rows: Mapping[str, int | None]
    replay_share: float
    fractions: Mapping[str, float | None]
    held_out_rows: Mapping[str, int | None]
    leakage_ngram: int
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
    pool = [
        conversation
        for name, file in loaded.items()
        if name not in HELD_OUT
        for conversation in file.conversations
    ]
    if settings.deduplicate:
        pool, duplicates = deduplicate(pool)
        prepared.ledger += duplicates
    parts = _split(pool, loaded, settings, prepared)
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
    prepared.ledger.sort(key=lambda row: (row.source, row.line, row.reason))
    prepared.report = _report(loaded, prepared, mixture, leaks, settings)
    return prepared


def _of(conversations: Sequence[Conversation], source: str) -> list[Conversation]:
    return [conversation for conversation in conversations if conversation.source == source]


def _field(split_name: str) -> str:
    return "data.sources" if split_name == "train" else f"data.{split_name}"


def _split(
    pool: Sequence[Conversation],
    loaded: Mapping[str, Loaded],
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
        if name in loaded:
            rows[:] = loaded[name].conversations
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
    leaks = leakage_of_sets(user_items(prepared.splits["train"], files), held_out, n)
    for name, report in leaks.items():
        limit = settings.leakage_max_share
        prepared.findings += check_leakage(name, report, max_share=limit, n=n)
    return leaks


def _report(
    loaded: Mapping[str, Loaded],
    prepared: Prepared,
    mixture: Mixture,
    leaks: Mapping[str, LeakReport],
    settings: Settings,
) -> dict[str, Any]:
    return {
        "sources": {
            name: _source_figures(file, prepared, mixture.repeated.get(name, 0))
            for name, file in loaded.items()
        },
        "splits": {name: len(rows) for name, rows in prepared.splits.items()},
        "replay": {
            "rows": mixture.replay,
            "share": mixture.replay_share,
            "share_asked": settings.replay_share,
        },
        "leakage": {name: _leak_figures(report) for name, report in leaks.items()},
        "duplicates": _duplicates(prepared.splits),
    }


def _source_figures(file: Loaded, prepared: Prepared, repeated: int) -> dict[str, Any]:
    """rows == sum(kept) + sum(dropped); `repeated` counts copies that a weight above 1 adds."""
    name = file.file.name
    reasons = Counter(row.reason for row in prepared.ledger if row.source == name)
    kept = {split_name: len(_of(rows, name)) for split_name, rows in prepared.splits.items()}
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


def _leak_figures(report: LeakReport) -> dict[str, Any]:
    return {
        "items": report.items,
        "exact": report.exact,
        "ngram": report.ngram,
        "share": report.share,
        "examples": [asdict(leak) for leak in report.examples[:EXAMPLES_IN_REPORT]],
    }


def _duplicates(splits: Mapping[str, Sequence[Conversation]]) -> dict[str, int]:
    """Conversations of the second split whose messages are those of one in the first; within a
    split, those that repeat an earlier one (in train also its copies by weight)."""
    ids = {name: [row.id.partition("#")[0] for row in rows] for name, rows in splits.items()}
    distinct = {name: set(of) for name, of in ids.items()}
    pairs = (("train", "eval"), ("train", "test"), ("eval", "test"))
    counts = {f"{a}_{b}": sum(key in distinct[a] for key in ids[b]) for a, b in pairs}
    return counts | {name: len(of) - len(distinct[name]) for name, of in ids.items()}
