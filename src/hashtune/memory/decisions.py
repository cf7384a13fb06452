"""From buckets to a decision: does it fit, how far could it go, what to change first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from hashtune.memory.changes import KINDS, Edit, Kind, Lost, edits, lost_by
from hashtune.memory.closed_form import Buckets, Workload
from hashtune.memory.limits import buckets_of, largest_micro, longest_row, needed_bytes
from hashtune.memory.sharding import Sharding
from hashtune.memory.slowdown import Slowdown, compare
from hashtune.spec.schema import Hardware, Precision

GB = 1e9
ROWS = "data.max_seq_len"
WORTH = 0.05  # a step of the path saves this share of what is missing, or is enough


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a step is weighed against, beside the memory it needs.

    `precision` is the spec's, `context` the mean length of the document a token lies in, `lengths`
    those of all training documents (none: not known), `positions` the base's, `sharding` how
    several such machines share the model (None: one alone).
    """

    hardware: Hardware
    precision: Precision
    context: float
    grad_accum: int = 1
    lengths: Sequence[int] = ()
    positions: int | None = None
    sharding: Sharding | None = None

    @property
    def available(self) -> int:
        """Bytes of memory."""
        return round(self.hardware.memory_gb * GB)


@dataclass(frozen=True, slots=True)
class Change:
    """One setting to change: the bytes it saves alone, whether it alone makes the run fit, what it
    costs in time, what kind of change it is, and the data that it loses."""

    setting: str
    saves: int
    enough: bool
    slowdown: Slowdown
    kind: Kind
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Bytes needed (`buckets` summed) against bytes there, how far it could go, what to change.

    `changes` come in the order to try them. `path` are settings that are enough together, empty
    when the run fits or when none are; `together` is what all changes would need.
    """

    buckets: Buckets
    needed: int
    available: int
    dominant: str
    longest_row: int
    largest_micro: int
    changes: list[Change]
    path: list[str]
    together: int

    @property
    def fits(self) -> bool:
        """Whether the estimate is within the machine's memory."""
        return self.needed <= self.available


def decide(work: Workload, around: Surroundings) -> Decision:
    """Weigh a workload against a machine.

    Each change is computed by the same formulas with one setting replaced, so a saving counts
    every bucket it touches. Changes that save nothing are not listed. Order: what is enough alone,
    then what keeps the run the same (KINDS); of those that are enough the least slowdown, of the
    others the largest saving.
    """
    available = around.available
    buckets, sharding = buckets_of(work, around.sharding), around.sharding
    needed = sum(buckets.values())
    tried = _tried(work, around)
    return Decision(
        buckets=buckets,
        needed=needed,
        available=available,
        dominant=max(buckets, key=lambda name: (buckets[name], name)),
        longest_row=_longest(work, around),
        largest_micro=largest_micro(work, available=available, sharding=sharding),
        changes=[change for change, _ in tried],
        path=first_path(work, around)[0],
        together=needed_bytes(
            reduce(lambda state, pair: pair[1].apply(state), tried, work), sharding
        ),
    )


def first_path(work: Workload, around: Surroundings) -> tuple[list[str], Workload]:
    """The first change, then the first one beside it, and so on until the run fits: settings that
    are enough together, and the step with them. None when it fits already, or never."""
    given = work
    settings: dict[str, str] = {}
    around = replace(around, lengths=())  # what is lost is told of single changes
    while (missing := needed_bytes(work, around.sharding) - around.available) > 0:
        tried = _tried(work, around)
        worth = [
            (change, edit)
            for change, edit in tried
            if (change.enough or change.saves >= WORTH * missing)
            and not (change.kind == "data" and ROWS in settings)  # halved once
        ]
        if not worth:
            return [], given
        change, edit = worth[0]
        before = work.micro
        work = edit.apply(work)
        around = replace(around, grad_accum=around.grad_accum * (before // work.micro))
        settings |= {part.partition("=")[0]: part for part in change.setting.split()}
    return list(settings.values()), work


def _longest(work: Workload, around: Surroundings) -> int:
    return longest_row(
        work,
        available=around.available,
        positions=around.positions,
        sharding=around.sharding,
    )


def _tried(work: Workload, around: Surroundings) -> list[tuple[Change, Edit]]:
    """The changes that save something, in the order to try them."""
    needed = needed_bytes(work, around.sharding)
    fitting = _longest(work, around)
    half = work.longest_row // 2  # less would be other data
    shorter = fitting if half < fitting < work.longest_row else half
    found = [
        (_change(work, edit, needed, around, shorter), edit)
        for edit in edits(work, grad_accum=around.grad_accum, shorter=shorter)
    ]
    helping = [pair for pair in found if pair[0].saves > 0]
    return sorted(helping, key=lambda pair: _order(pair[0]))


def _change(work: Workload, edit: Edit, needed: int, around: Surroundings, shorter: int) -> Change:
    after = edit.apply(work)
    need = needed_bytes(after, around.sharding)
    slowdown = Slowdown(None, edit.note)
    if edit.known:
        slowdown = compare(
            *(work, after),
            hardware=around.hardware,
            precision=around.precision,
            context=around.context,
        )
        if edit.note:
            slowdown = Slowdown(slowdown.factor, f"{slowdown.source}; {edit.note}")
    return Change(
        *(edit.setting, needed - need, need <= around.available, slowdown, edit.kind),
        lost=lost_by(shorter, around.lengths) if edit.kind == "data" else None,
    )


def _order(change: Change) -> tuple[bool, int, float, int, str]:
    """Not known counts as the slowest."""
    factor = change.slowdown.factor
    cost = (factor if factor is not None else float("inf")) if change.enough else 0.0
    return (not change.enough, KINDS.index(change.kind), cost, -change.saves, change.setting)
