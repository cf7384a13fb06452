"""Usual ranges of settings, each with its source. Outside of one is a hint, never a finding.

A range may hold for some methods and optimizers only; a method or optimizer that no range names
gets no hint. "TM" is the training mechanics course (2026), whose lab sweeps learning rates.

No rate and no number of epochs for a prompt or prefix, by design: the sources lie too far apart. A
prompt has 0.3 with Adafactor over 30,000 steps (Lester et al. 2021, arXiv 2104.08691), a prefix
5e-5 over 10 epochs where a network makes it out of smaller vectors (Li and Liang 2021, arXiv
2101.00190), and here it is trained itself. Nor a rate for adafactor and sgd: TM has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from hashtune.spec.schema import Spec

ADAPTERS = frozenset({"lora", "qlora"})  # of any variant
FULL = frozenset({"full"})
WEIGHTS = ADAPTERS | FULL  # not virtual tokens
ADAMW_SIZED = frozenset(
    {"adamw", "adamw_fused", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "muon"}
)
LION = frozenset({"lion"})
NOT_LION = ADAMW_SIZED | {"adafactor", "sgd"}


@dataclass(frozen=True, slots=True)
class Range:
    """What is usual for a field; `methods` or `optimizers` of None: for all of them."""

    field: str
    low: float
    high: float
    source: str
    methods: frozenset[str] | None = None
    optimizers: frozenset[str] | None = None

    def holds_for(self, method: str, optimizer: str) -> bool:
        """Whether the range says something about this method and optimizer."""
        return (self.methods is None or method in self.methods) and (
            self.optimizers is None or optimizer in self.optimizers
        )


SWEEP = "TM, lab L3.3"
TENTH = "Chen et al. 2023, arXiv 2302.06675: 3 to 10 times below AdamW's"
TENFOLD = "Chen et al. 2023, arXiv 2302.06675: 3 to 10 times above AdamW's"
REGULAR = "TM on regularisation, and Unsloth's LoRA guide"
RANGES = (
    Range("optim.lr", 2e-5, 5e-4, f"{SWEEP}, best near 1e-4 to 2e-4", ADAPTERS, ADAMW_SIZED),
    Range("optim.lr", 5e-6, 2e-5, f"{SWEEP}; a tenth of LoRA's", FULL, ADAMW_SIZED),
    Range("optim.lr", 2e-6, 1.7e-4, TENTH, ADAPTERS, LION),
    Range("optim.lr", 5e-7, 6.7e-6, TENTH, FULL, LION),
    Range("optim.weight_decay", 0.0, 0.1, REGULAR, optimizers=NOT_LION),
    Range("optim.weight_decay", 0.0, 1.0, TENFOLD, optimizers=LION),
    Range("optim.neftune_alpha", 5.0, 15.0, "Jain et al. 2023, arXiv 2310.05914"),
    Range("duration.epochs", 1, 3, REGULAR, WEIGHTS),
    Range("schedule.warmup_fraction", 0.03, 0.1, "TM on schedules"),
    Range("schedule.decay_fraction", 0.1, 0.2, "Haegele et al. 2024, arXiv 2405.18392"),
)


def hints(spec: Spec) -> Iterator[str]:
    """A line for each setting that lies outside its usual range; null is no value."""
    method, optimizer = spec.method.type, spec.optim.name
    for usual in RANGES:
        value = reduce(getattr, usual.field.split("."), spec)
        if not usual.holds_for(method, optimizer) or not isinstance(value, int | float):
            continue
        if not usual.low <= value <= usual.high:
            where = "below" if value < usual.low else "above"
            of = f"{method} with {optimizer}" if usual.optimizers else "fine-tuning"
            yield (
                f"{usual.field} {value:g} is {where} {usual.low:g} to {usual.high:g}, "
                f"usual for {of} ({usual.source})"
            )
