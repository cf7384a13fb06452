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
TWICE = 2.0  # standard errors of a difference that seeds alone explain
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


def seed_spread(found: Sequence[Group], metric: Metric) -> float | None:
    """Standard deviation of the metric across seeds, pooled over the groups of two or more runs;
    None where no settings were run with two seeds."""
    squares = degrees = 0.0
    for group in found:
        values = [value for run in group.runs if (value := metric.of(run)) is not None]
        if len(values) > 1:
            mean = fmean(values)
            squares += sum((value - mean) ** 2 for value in values)
            degrees += len(values) - 1
    return math.sqrt(squares / degrees) if degrees else None


def sentences(found: Sequence[Group], metric: Metric) -> list[str]:
    """What the metric says of each group beside the best one."""
    means = {}
    for place, group in enumerate(found):
        values = [value for run in group.runs if (value := metric.of(run)) is not None]
        if values:
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


def _judge(best: tuple[float, int], other: tuple[float, int], spread: float | None) -> str:
    """A difference of two means is noise within two standard errors: spread * sqrt(1/n + 1/m)."""
    if spread is None:
        return (
            "whether that is more than seed noise is unknown; run one of them with other seeds"
            " (`dvc exp run --queue -S 'seed=1,2,3'`)."
        )
    noise = TWICE * spread * math.sqrt(1 / best[1] + 1 / other[1])
    within = abs(best[0] - other[0]) <= noise
    word = "difference within seed noise" if within else "difference beyond seed noise"
    return f"{word} ({noise:.2g} at two standard errors, {spread:.2g} across seeds)."
