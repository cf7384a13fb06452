"""Runs beside each other: what varies, what came of it, and whether it is more than seed noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hashtune.report.runs import Run
from hashtune.spec.drift import leaves

SEEDS = ("seed", "data_seed", "init_seed")
TOLD_APART = ("run.experiment", "conf_sha256")
# Student's t, two-sided at 95 %, for 1, 2, ... degrees of freedom; the last serves for more
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
METRICS = (
    ("mean test score", "evaluate", "task.scores", True),
    ("suites, mean score", "regress", "suites.score", True),
    ("eval loss", "train", "eval_loss", False),
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run; `higher` says which way is better."""

    name: str
    report: str
    key: str
    higher: bool

    def of(self, run: Run) -> float | None:
        """Its value, the mean where the report has one by field; None where it has none."""
        value = run.figure(self.report, self.key)
        if isinstance(value, dict):
            return fmean(value.values()) if value else None
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in their seeds alone: the settings they share of those that vary."""

    settings: tuple[tuple[str, Any], ...]
    runs: list[Run]

    @property
    def name(self) -> str:
        """The settings in words."""
        return ", ".join(f"{key}={value}" for key, value in self.settings) or "same settings"


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviation across seeds, with its degrees of freedom."""

    deviation: float
    degrees: int


METRICS_OF_RUNS = tuple(Metric(*metric) for metric in METRICS)


def varied(runs: Sequence[Run]) -> list[str]:
    """Dotted keys whose value differs between the runs, in key order; seeds too."""
    tables = [leaves(run.params) for run in runs]
    keys = sorted({key for table in tables for key in table} - set(TOLD_APART))
    return [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]


def groups(runs: Sequence[Run]) -> list[Group]:
    """The runs by what varies beside the seeds, in the order in which they come."""
    keys = [key for key in varied(runs) if key not in SEEDS]
    found: dict[str, Group] = {}
    for run in runs:
        values = leaves(run.params)
        settings = tuple((key, values.get(key)) for key in keys)
        found.setdefault(repr(settings), Group(settings, [])).runs.append(run)
    return list(found.values())


def values_by_seed(group: Group, metric: Metric) -> list[float]:
    """The metric of each run; of runs with the same seeds the first, as it is no new draw."""
    found: dict[str, float] = {}
    for run in group.runs:
        value, settings = metric.of(run), leaves(run.params)
        if value is not None:
            found.setdefault(repr([settings.get(key) for key in SEEDS]), value)
    return list(found.values())


def seed_spread(found: Sequence[Group], metric: Metric) -> Spread | None:
    """Spread of the metric across seeds, pooled over the groups with two or more; None where no
    settings were run with two seeds."""
    squares, degrees = 0.0, 0
    for group in found:
        values = values_by_seed(group, metric)
        if len(values) > 1:
            mean = fmean(values)
            squares += sum((value - mean) ** 2 for value in values)
            degrees += len(values) - 1
    return Spread(math.sqrt(squares / degrees), degrees) if degrees else None


def sentences(found: Sequence[Group], metric: Metric) -> list[str]:
    """What the metric says of each group beside the best one."""
    means = {}
    for place, group in enumerate(found):
        if values := values_by_seed(group, metric):
            means[place] = (fmean(values), len(values))
    if len(means) < 2:
        return []
    sign = 1 if metric.higher else -1
    best = max(means, key=lambda place: sign * means[place][0])
    spread = seed_spread(found, metric)
    return [
        f"{metric.name}: {found[best].name} has {means[best][0]:.4g}, {found[place].name} "
        f"{means[place][0]:.4g}: {_judge(means[best], means[place], spread)}"
        for place in means
        if place != best
    ]


def _judge(best: tuple[float, int], other: tuple[float, int], spread: Spread | None) -> str:
    """A difference of two means is noise within its 95 % interval: t * spread * sqrt(1/n + 1/m), t
    of Student's distribution with the degrees of freedom of the pooled spread. Of two seeds that is
    12.7 standard errors, not 2."""
    if spread is None:
        return (
            "whether that is more than seed noise is unknown; run one of them with other seeds"
            " (`dvc exp run --queue -S 'seed=1,2,3'`)."
        )
    if spread.deviation == 0.0:
        return "whether that is more than seed noise is unknown: all seeds gave the same value."
    t = STUDENT[min(spread.degrees, len(STUDENT)) - 1]
    noise = t * spread.deviation * math.sqrt(1 / best[1] + 1 / other[1])
    within = abs(best[0] - other[0]) <= noise
    word = "difference within seed noise" if within else "difference beyond seed noise"
    freedom = f"{spread.degrees} degree{'' if spread.degrees == 1 else 's'} of freedom"
    return f"{word} ({noise:.2g} at 95 %, {spread.deviation:.2g} across seeds, {freedom})."
