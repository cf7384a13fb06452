"""Usual ranges of settings, each with its source. Outside of one is a hint, never a finding.

A range may hold for some methods and optimizers only. What depends on the number of steps is in
length_hints.py.

No number of epochs for a prompt or prefix and no usual rate, by design: the sources lie too far
apart. A prompt has 0.3 with Adafactor over 30,000 steps (Lester et al. 2021, arXiv 2104.08691), a
prefix 5e-5 over 10 epochs where a network makes it out of smaller vectors (Li and Liang 2021, arXiv
2101.00190), and here it is trained itself. Nor a usual rate for adafactor and sgd: no source has
one. LIMITS are for these: what lies outside is outside of all that was published, or moves weights
further than they are large. Each method with each optimizer has a range or a limit of its rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from hashtune.spec.methods import SOFT
from hashtune.spec.schema import Spec

ADAPTERS = frozenset({"lora", "qlora"})  # of any variant
FULL = frozenset({"full"})
WEIGHTS = ADAPTERS | FULL  # not virtual tokens
VIRTUAL = frozenset(SOFT)
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
    words: str = "usual for"

    def holds_for(self, method: str, optimizer: str) -> bool:
        """Whether the range says something about this method and optimizer."""
        return (self.methods is None or method in self.methods) and (
            self.optimizers is None or optimizer in self.optimizers
        )


COURSE = 'the course "Training Mechanics: Optimizers, Schedules, and Memory Math" (2026)'
SWEPT = f"the rates at which {COURSE} compares eval losses of"
LORA = f"{SWEPT} LoRA, lowest near 1e-4 to 2e-4"
WHOLE = f"{SWEPT} full fine-tuning, about a tenth of LoRA's"
TENTH = "the Lion paper, Chen et al. 2023, arXiv 2302.06675: 3 to 10 times below AdamW's"
TENFOLD = "the Lion paper, Chen et al. 2023, arXiv 2302.06675: 3 to 10 times above AdamW's"
REGULAR = f"{COURSE} and Unsloth's guide to LoRA"
SCHEDULES = f"{COURSE}; Unsloth's guide says 0.05 to 0.1"
DECAYS = "Haegele et al. 2024, a paper on schedules with a decay at their end, arXiv 2405.18392"
NOISE = "the NEFTune paper, Jain et al. 2023, arXiv 2310.05914"
PAPERS = "5e-5 in the prefix paper, Li and Liang 2021, arXiv 2101.00190, and 0.3 in the prompt "
PAPERS += "paper, Lester et al. 2021, arXiv 2104.08691"
SIGNS = f"{PAPERS}; for Lion 3 to 10 times less"
OWN_SIZE = "our own limits: at 1 an update moves each weight by about 1, and most are far smaller"
ONE_GRADIENT = "our own limits: at 1 an update is as long as the gradient, clipped or not"
RANGES = (
    Range("optim.lr", 2e-5, 5e-4, LORA, ADAPTERS, ADAMW_SIZED),
    Range("optim.lr", 5e-6, 2e-5, WHOLE, FULL, ADAMW_SIZED),
    Range("optim.lr", 2e-6, 1.7e-4, TENTH, ADAPTERS, LION),
    Range("optim.lr", 5e-7, 6.7e-6, TENTH, FULL, LION),
    Range("optim.weight_decay", 0.0, 0.1, REGULAR, optimizers=NOT_LION),
    Range("optim.weight_decay", 0.0, 1.0, TENFOLD, optimizers=LION),
    Range("optim.neftune_alpha", 5.0, 15.0, NOISE),
    Range("duration.epochs", 1, 3, REGULAR, WEIGHTS),
    Range("schedule.warmup_fraction", 0.03, 0.1, SCHEDULES),
    Range("schedule.decay_fraction", 0.1, 0.2, DECAYS),
)
KNOWN = "the widest known for"
SCALED = ADAMW_SIZED | {"adafactor"}  # the size of an update does not follow the gradient's
LIMITS = (
    Range("optim.lr", 5e-5, 0.3, PAPERS, VIRTUAL, SCALED, KNOWN),
    Range("optim.lr", 5e-6, 0.1, SIGNS, VIRTUAL, LION, KNOWN),
    Range("optim.lr", 1e-7, 1.0, OWN_SIZE, WEIGHTS, frozenset({"adafactor"}), KNOWN),
    Range("optim.lr", 1e-7, 1.0, ONE_GRADIENT, None, frozenset({"sgd"}), KNOWN),
)


def hints(spec: Spec) -> Iterator[str]:
    """A line for each setting that lies outside its usual range; null is no value."""
    method, optimizer = spec.method.type, spec.optim.name
    for usual in (*RANGES, *LIMITS):
        value = reduce(getattr, usual.field.split("."), spec)
        if not usual.holds_for(method, optimizer) or not isinstance(value, int | float):
            continue
        if not usual.low <= value <= usual.high:
            where = "below" if value < usual.low else "above"
            of = f"{method} with {optimizer}" if usual.optimizers else "fine-tuning"
            yield (
                f"{usual.field} {value:g} is {where} {usual.low:g} to {usual.high:g}, "
                f"{usual.words} {of} ({usual.source})"
            )
