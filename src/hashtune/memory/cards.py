"""The same step on every machine of conf/hardware: which fit, how far they go, which is cheapest.

Where a card has no unit for the precision, the plan takes the other type of two bytes, and says so:
a T4 has fp16 and no bf16.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hashtune.memory.closed_form import Workload
from hashtune.memory.cost import Duration, duration
from hashtune.memory.decisions import GB, Surroundings, first_path
from hashtune.memory.limits import largest_micro, longest_row, needed_bytes
from hashtune.spec.hardware import peak_of
from hashtune.spec.precision import stored_type
from hashtune.spec.schema import Hardware, Precision

INSTEAD: Mapping[Precision, tuple[Precision, ...]] = {
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "tf32": ("fp32",),
}


@dataclass(frozen=True, slots=True)
class Card:
    """A machine and the step on it. `precision` is the one it is planned in, `path` the changes
    that make it fit (see Decision), `time` what the run takes, with these changes if any."""

    name: str
    precision: Precision
    needed: int
    available: int
    longest_row: int
    largest_micro: int
    path: list[str]
    time: Duration
    price_per_hour: float

    @property
    def fits(self) -> bool:
        """Whether the estimate is within its memory."""
        return self.needed <= self.available


def every_card(
    work: Workload, around: Surroundings, machines: Iterable[Hardware], *, tokens: int
) -> list[Card]:
    """One card for each machine, in order of price an hour."""
    found = [_card(work, around, machine, tokens) for machine in machines]
    return sorted(found, key=lambda card: (card.price_per_hour, card.name))


def cheapest(cards: Sequence[Card]) -> Card | None:
    """The card on which the run costs least of those that it fits; machines without a price are
    left out. None when it fits none."""
    fitting = [card for card in cards if card.fits and card.price_per_hour > 0]
    return min(fitting, key=lambda card: (card.time.cost, card.name), default=None)


def nearest_to_fit(cards: Sequence[Card]) -> Card | None:
    """The card on which the run costs least of those that changes make it fit."""
    helped = [card for card in cards if card.path and card.price_per_hour > 0]
    return min(helped, key=lambda card: (card.time.cost, card.name), default=None)


def on_machine(work: Workload, precision: Precision, machine: Hardware) -> Workload:
    """The workload as this machine runs it."""
    return replace(
        work,
        precision=stored_type(precision),
        device=machine.device,
        overhead_bytes=round(machine.overhead_gb * GB),
        offload=work.offload and machine.device == "cuda",
    )


def possible(precision: Precision, machine: Hardware) -> Precision:
    """The precision, or the next one that the machine has a unit for."""
    choices = (precision, *INSTEAD.get(precision, ()))
    return next(c for c in choices if peak_of(machine.peak_tflops, c) is not None)


def _card(work: Workload, around: Surroundings, machine: Hardware, tokens: int) -> Card:
    precision = possible(around.precision, machine)
    here, there = (
        on_machine(work, precision, machine),
        replace(around, hardware=machine, precision=precision),
    )
    sharding, world = around.sharding, around.sharding.world if around.sharding else 1
    path, then = first_path(here, there)
    available, peak = there.available, peak_of(machine.peak_tflops, precision)
    assert peak is not None  # `possible` chose one that is there
    return Card(
        name=machine.name,
        precision=precision,
        needed=needed_bytes(here, sharding),
        available=available,
        longest_row=longest_row(
            here, available=available, positions=around.positions, sharding=sharding
        ),
        largest_micro=largest_micro(here, available=available, sharding=sharding),
        path=path,
        time=duration(
            then,
            tokens=tokens,
            context=around.context,
            peak_tflops=peak * world,  # as if communication cost no time
            expected_utilisation=machine.expected_utilisation,
            price_per_hour=machine.price_per_hour * world,
        ),
        price_per_hour=machine.price_per_hour * world,
    )
