"""Tokens to hours and money: FLOPs of the step plan over the share of the peak that is used.

The share is assumed in conf/hardware. A run on record corrects it: HFU in
reports/machine/train.json counts the same FLOPs (recomputed blocks included) over the time that
training took. Nothing corrected enters reports/plan.json, which must have the same bytes on every
machine; `hashtune plan` shows it beside the assumption (docs/decisions.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hashtune.memory.closed_form import Workload, flops_per_token

SECONDS_PER_HOUR = 3600.0
TERA = 1e12


@dataclass(frozen=True, slots=True)
class Duration:
    """What the run takes: tokens without padding, FLOPs, speed, hours, and their price."""

    tokens: int
    flops: float
    tokens_per_second: float
    hours: float
    cost: float


def token_flops(work: Workload, *, context: float) -> float:
    """FLOPs to train on one token, recomputed blocks included; `context`: see `flops_per_token`."""
    return flops_per_token(
        work.shape,
        adapter=work.adapter_parameters,
        context=context,
        recomputed_blocks=work.recomputed_blocks,
        full=work.full,
    )


def duration(
    work: Workload,
    *,
    tokens: int,
    context: float,
    peak_tflops: float,
    expected_utilisation: float,
    price_per_hour: float,
) -> Duration:
    """Time and cost of training on `tokens` tokens at the expected share of the peak.

    `context` is the mean number of tokens a token attends over, see `flops_per_token`. Loading,
    evaluation and padding come on top.
    """
    each = token_flops(work, context=context)
    speed = peak_tflops * TERA * expected_utilisation / each
    hours = tokens / speed / SECONDS_PER_HOUR
    return Duration(tokens, tokens * each, speed, hours, hours * price_per_hour)


@dataclass(frozen=True, slots=True)
class Measured:
    """A run on record: the machine, the share of the peak that it used, and that peak."""

    device: str
    utilisation: float
    peak_tflops: float

    def hours(self, flops: float) -> float:
        """Hours that so many FLOPs take at this rate."""
        return flops / (self.peak_tflops * TERA * self.utilisation) / SECONDS_PER_HOUR


def measured_run(machine: Mapping[str, Any] | None, *, peak_tflops: float) -> Measured | None:
    """The recorded run that corrects the assumed share; None without one, or one whose share is of
    another peak, so of other hardware or another precision.

    `machine` is the content of reports/machine/train.json.
    """
    if machine is None or machine.get("hfu") is None:
        return None
    if machine.get("peak_tflops") != peak_tflops:
        return None
    return Measured(str(machine["device"]), float(machine["hfu"]), peak_tflops)
