"""The training mix: how many rows of each source, how much replay, in which order.

Rows are taken in the order of the hash of their id, so a larger weight or limit only adds rows,
and neither the choice nor the order depends on the order of the input files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from hashtune.data.split import rank, take_first
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped

REPLAY = "replay"


@dataclass(slots=True)
class Mixture:
    """Rows in training order with distinct ids, and what was left out.

    `task` and `replay` count rows; `repeated` counts, by source, rows beyond the first pass.
    """

    rows: list[Conversation] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    repeated: dict[str, int] = field(default_factory=dict)
    task: int = 0
    replay: int = 0

    @property
    def replay_share(self) -> float:
        """Replay rows / all rows."""
        return self.replay / len(self.rows) if self.rows else 0.0


def mix(
    sources: Mapping[str, Sequence[Conversation]],
    weights: Mapping[str, float],
    max_rows: Mapping[str, int | None],
    replay: Sequence[Conversation],
    share: float,
) -> Mixture:
    """Take round(weight * rows) rows of each source, at most max_rows, and add replay rows.

    Weight 0.5 takes half of the rows, 1 every row once, 2 every row twice: the copies get the ids
    "<id>#2", "<id>#3", ... Replay rows make up `share` of the mix, in [0, 1):
    round(task rows * share / (1 - share)). Findings when a source gives no row or there are
    too few replay rows.
    """
    mixture = Mixture()
    taken: list[Conversation] = []
    for name, rows in sources.items():
        chosen = _take(name, rows, weights[name], max_rows[name], mixture)
        if rows and not chosen:
            message = f"takes 0 of {len(rows)} rows of {name} at weight {weights[name]:g}"
            mixture.findings.append(Finding("no-rows", message, field="data.sources"))
        taken += chosen
    mixture.task = len(taken)
    taken += _take_replay(replay, share, mixture)
    taken.sort(key=lambda row: (row.id, row.source, row.line))
    mixture.rows = sorted(number_repeats(taken), key=lambda row: rank(row.id))
    return mixture


def _take(
    name: str, rows: Sequence[Conversation], weight: float, limit: int | None, mixture: Mixture
) -> list[Conversation]:
    ordered, _ = take_first(rows, None)
    wanted = _round(weight * len(ordered))
    count = wanted if limit is None else min(wanted, limit)
    for place, row in enumerate(ordered[count:], start=count):
        reason = "weight" if place >= wanted else "max_rows"
        mixture.dropped.append(Dropped(row.id, row.source, row.line, reason))
    passes, rest = divmod(count, len(ordered)) if ordered else (0, 0)
    mixture.repeated[name] = max(0, count - len(ordered))
    return ordered * passes + ordered[:rest]


def _take_replay(
    replay: Sequence[Conversation], share: float, mixture: Mixture
) -> list[Conversation]:
    if share >= 1.0:
        message = f"{share:g} leaves no room for the task; it must be below 1"
        mixture.findings.append(Finding("replay-share", message, field="data.replay.share"))
        return []
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
    chosen, others = take_first(replay, wanted)
    mixture.dropped += [Dropped(row.id, row.source, row.line, "replay_share") for row in others]
    mixture.replay = len(chosen)
    return chosen


def _round(value: float) -> int:
    """Round half up: Python's round() would take 2 rows of 5 at weight 0.5, and 4 of 7."""
    return floor(value + 0.5)


def number_repeats(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Give the second row with an id the id "<id>#2", and so on: ids are distinct downstream."""
    seen: dict[str, int] = {}
    numbered = []
    for row in conversations:
        seen[row.id] = seen.get(row.id, 0) + 1
        times = seen[row.id]
        numbered.append(row if times == 1 else replace(row, id=f"{row.id}#{times}"))
    return numbered
