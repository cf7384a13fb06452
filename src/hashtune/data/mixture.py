"""The training mix: how many rows of each source, how much replay, in which order.

Rows are taken in the order of the hash of their id, so a larger weight or limit only adds rows,
and neither the choice nor the order depends on the order of the input files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor

import numpy as np

from hashtune.data.runs import occurrences
from hashtune.data.split import take_first
from hashtune.data.table import Chosen, Rows, Table, hash64, nothing
from hashtune.errors import Finding

REPLAY = "replay"


@dataclass(slots=True)
class Mixture:
    """Rows in training order with distinct ids; what was left out is dropped in the table.

    `task` and `replay` count rows; `repeated` counts, by source, rows beyond the first pass.
    """

    rows: Chosen = field(default_factory=nothing)
    findings: list[Finding] = field(default_factory=list)
    repeated: dict[str, int] = field(default_factory=dict)
    task: int = 0
    replay: int = 0

    @property
    def replay_share(self) -> float:
        """Replay rows / all rows."""
        return self.replay / len(self.rows.rows) if len(self.rows.rows) else 0.0


def mix(
    table: Table,
    sources: Mapping[str, Rows],
    *,
    weights: Mapping[str, float],
    max_rows: Mapping[str, int | None],
    replay: Rows,
    share: float,
) -> Mixture:
    """Take round(weight * rows) rows of each source, at most max_rows, and add replay rows.

    Weight 0.5 takes half of the rows, 1 every row once, 2 every row twice: the copies get the ids
    "<id>#2", "<id>#3", ... Replay rows make up `share` of the mix, in [0, 1):
    round(task rows * share / (1 - share)). Findings when a source gives no row or there are
    too few replay rows.
    """
    mixture = Mixture()
    taken: list[Rows] = []
    for name, rows in sources.items():
        chosen = _take(table, rows, weights[name], max_rows[name])
        mixture.repeated[name] = max(0, len(chosen) - len(rows))
        if not len(chosen):
            mixture.findings += _nothing_of(name, len(rows), weights[name], table)
        taken.append(chosen)
    mixture.task = sum(map(len, taken))
    taken.append(_take_replay(table, replay, share, mixture))
    mixture.rows = _in_training_order(table, np.concatenate(taken))
    return mixture


def _take(table: Table, rows: Rows, weight: float, limit: int | None) -> Rows:
    ordered, _ = take_first(table, rows, None)
    wanted = _round(weight * len(ordered))
    count = wanted if limit is None else min(wanted, limit)
    table.drop(ordered[count:wanted], "max_rows")
    table.drop(ordered[wanted:], "weight")
    return np.resize(ordered, count if len(ordered) else 0)  # over and over again


def _nothing_of(name: str, rows: int, weight: float, table: Table) -> Iterator[Finding]:
    """A source that is declared and adds nothing is no mixture that anyone meant; one whose few
    rows were all held out serves another split."""
    if rows:
        message = f"takes 0 of {rows} rows of {name} at weight {weight:g}"
        yield Finding("no-rows", message, field="data.sources")
        return
    gone = table.dropped(name)
    if gone and not len(table.of(table.kept(), name)):
        counts = ", ".join(f"{reason} {count}" for reason, count in gone.items())
        message = f"no row of {name} is left ({counts})"
        fix = "remove this source, or loosen the rule that drops its rows"
        yield Finding("no-rows", message, field="data.sources", fix=fix)


def _take_replay(table: Table, replay: Rows, share: float, mixture: Mixture) -> Rows:
    if share >= 1.0:
        message = f"{share:g} leaves no room for the task; it must be below 1"
        mixture.findings.append(Finding("replay-share", message, field="data.replay.share"))
        return replay[:0]
    wanted = _round(mixture.task * share / (1.0 - share))
    if wanted > len(replay):
        message = (
            f"{share:g} of the mix is {wanted} replay rows for {mixture.task} task rows, "
            f"but there are {len(replay)} answers"
        )
        fix = (
            f"raise data.replay.max_prompts, add {wanted - len(replay)} prompts, or lower the share"
        )
        mixture.findings.append(
            Finding("replay-share", message, field="data.replay.share", fix=fix)
        )
    chosen, others = take_first(table, replay, wanted)
    table.drop(others, "replay_share")
    mixture.replay = len(chosen)
    return chosen


def _round(value: float) -> int:
    """Round half up: Python's round() would take 2 rows of 5 at weight 0.5, and 4 of 7."""
    return floor(value + 0.5)


def _in_training_order(table: Table, rows: Rows) -> Chosen:
    """By the hash of the id, that of a copy being its own."""
    taken = number_repeats(table, table.in_order(table.columns.id[rows], rows=rows))
    ranks = table.columns.rank[taken.rows]
    for place in np.flatnonzero(taken.times > 1):
        ranks[place] = hash64(table.id(taken.rows[place], taken.times[place]))
    order = np.argsort(ranks, kind="stable")
    return Chosen(taken.rows[order], taken.times[order])


def number_repeats(table: Table, rows: Rows) -> Chosen:
    """The second row with an id will have the id "<id>#2", and so on: ids are distinct
    downstream."""
    return Chosen(rows, occurrences(table.columns.id[rows]))
