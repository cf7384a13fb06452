"""From a record of births and deaths to peaks, and to what is alive at the highest.

All figures are bytes of storages as torch asks for them; `reserved` and `rounded` are those of the
allocator model. A phase's peak counts what was alive when it began.
"""

import re
from collections import Counter
from dataclasses import dataclass

from hashtune.memory.rehearsal.allocator import Allocator, Block, OutOfMemoryError, replay
from hashtune.memory.rehearsal.events import Birth, Events
from hashtune.training.phases import Phase

LARGEST = 10


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The most alive in a phase, by storage and as the allocator has it, and alive at its end."""

    peak: int
    reserved: int
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    """Storages alive at the peak that one line made for one kind of module: how many, the bytes of
    all, the largest's shape and type."""

    line: str
    module: str
    count: int
    size: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a run holds, in bytes.

    peak: the most alive at once; peak_phase: when. rounded, reserved: the allocator's peaks.
    phases: in the order in which they first came. modules: alive at the peak, by the module that
    made it, layer numbers replaced by *. largest: the ten largest tensors alive at the peak;
    groups: the ten lines that hold most there. events: the record itself. assumed: what was taken
    for granted.
    """

    peak: int
    peak_phase: Phase
    rounded: int
    reserved: int
    phases: dict[Phase, PhasePeak]
    modules: dict[str, int]
    largest: list[Birth]
    groups: list[Group]
    events: Events
    assumed: tuple[str, ...] = ()


def judge(events: Events, *, assumed: tuple[str, ...] = ()) -> Rehearsal:
    """Peaks of a record; what was written before the first mark belongs to its phase."""
    walk = _Walk()
    marks = events.marks or [(0, "load")]
    ends = [start for start, _ in marks[1:]] + [len(events.numbers)]
    begin = 0
    for (_, phase), end in zip(marks, ends, strict=True):
        walk.enter(phase)
        for index in range(begin, end):
            walk.take(index, events.numbers[index], events.size(events.numbers[index]))
        walk.leave(phase)
        begin = end
    alive = _alive(events, walk.at)
    largest = sorted(alive, key=lambda birth: (-birth.size, birth.line, birth.module))
    modules = Counter[str]()
    for birth in alive:
        modules[kind(birth.module)] += birth.size
    return Rehearsal(
        peak=walk.peak,
        peak_phase=walk.phase,
        rounded=walk.allocator.peak_allocated,
        reserved=walk.allocator.peak_reserved,
        phases=walk.phases,
        modules=dict(sorted(modules.items(), key=lambda item: (-item[1], item[0]))),
        largest=largest[:LARGEST],
        groups=_groups(alive),
        events=events,
        assumed=assumed,
    )


def fits_in(events: Events, capacity: int) -> bool:
    """Whether the allocator gets through this record with so many bytes of segments, giving back
    those that are only cached when it is full."""
    pairs = ((number, events.size(number)) for number in events.numbers)
    try:
        replay(pairs, capacity=capacity)
    except OutOfMemoryError:
        return False
    return True


def kind(module: str) -> str:
    """A module's name without the number of its layer: model.layers.*.mlp."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module)


class _Walk:
    """Through a record, once."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.at = -1  # the last event that belongs to the peak
        self.phase: Phase = "load"
        self.phases: dict[Phase, PhasePeak] = {}
        self.allocator = Allocator()
        self._blocks: dict[int, Block] = {}
        self._highest = self._reserved = 0

    def enter(self, phase: Phase) -> None:
        self._highest, self._reserved = self.now, self.allocator.reserved
        self._phase = phase

    def take(self, index: int, number: int, size: int) -> None:
        self.now += size
        if number > 0 and size:
            self._blocks[number] = self.allocator.malloc(size)
        elif -number in self._blocks:
            self.allocator.free(self._blocks.pop(-number))
        self._highest = max(self._highest, self.now)
        self._reserved = max(self._reserved, self.allocator.reserved)
        if self.now > self.peak:
            self.peak, self.at, self.phase = self.now, index, self._phase

    def leave(self, phase: Phase) -> None:
        before = self.phases.get(phase, PhasePeak(0, 0, 0))
        highest, reserved = max(before.peak, self._highest), max(before.reserved, self._reserved)
        self.phases[phase] = PhasePeak(highest, reserved, self.now)


def _alive(events: Events, last: int) -> list[Birth]:
    numbers: dict[int, None] = {}
    for number in events.numbers[: last + 1]:
        if number > 0:
            numbers[number] = None
        else:
            del numbers[-number]
    return [events.births[number - 1] for number in numbers]


def _groups(alive: list[Birth]) -> list[Group]:
    found: dict[tuple[str, str], list[Birth]] = {}
    for birth in alive:
        found.setdefault((birth.line, kind(birth.module)), []).append(birth)
    groups = []
    for (line, module), births in found.items():
        first = max(births, key=lambda birth: birth.size)
        size = sum(birth.size for birth in births)
        groups.append(Group(line, module, len(births), size, first.shape, first.dtype))
    return sorted(groups, key=lambda g: (-g.size, g.line, g.module))[:LARGEST]
