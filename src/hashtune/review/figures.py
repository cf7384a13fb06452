"""What the committed reports of two revisions say: metrics, the gate's rules, the memory plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.review.reports import read_report

GATE = "reports/gate.json"
PLAN = "reports/plan.json"
# (report, dotted key, words), the figures a reviewer asks for first
HEADLINES = (
    ("reports/pack.json", "train.examples", "training examples"),
    ("reports/pack.json", "plan.steps", "steps"),
    ("reports/pack.json", "plan.trained_tokens_seen", "trained tokens seen"),
    ("reports/pack.json", "plan.trained_tokens_per_step.mean", "trained tokens per step, mean"),
    ("reports/train.json", "eval_loss", "eval loss of the adapter"),
    ("reports/train.json", "loss_last", "last train loss"),
    ("reports/train.json", "adapter_step", "step of the adapter"),
    ("reports/train.json", "trainable_parameters", "trainable parameters"),
)
MEMORY = (
    (PLAN, "needed_gb", "memory needed, GB"),
    (PLAN, "available_gb", "memory of the hardware, GB"),
    (PLAN, "dominant", "largest part"),
    (PLAN, "hours", "hours planned"),
    (PLAN, "cost", "cost planned"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure before and after; None where a revision has no such report."""

    words: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule of the gate before and after, each as its report tells it (None: no such rule)."""

    name: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


def headlines(base: Path, head: Path) -> list[Figure]:
    """Figures of data and training, changed or not; without those that neither revision has."""
    return list(_figures(HEADLINES, base, head))


def memory(base: Path, head: Path) -> list[Figure]:
    """The memory plan's figures, then its parts in GB (1e9 bytes)."""
    old, new = (_at(read_report(root, PLAN), "buckets_bytes") or {} for root in (base, head))
    return [*_figures(MEMORY, base, head), *buckets_in_gb(old, new)]


def buckets_in_gb(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Figure]:
    """Each part of a plan in GB (1e9 bytes), by name; None where a revision has no such part."""
    for name in sorted({*old, *new}):
        parts = [None if name not in part else round(part[name] / 1e9, 3) for part in (old, new)]
        yield Figure(f"  {name}, GB", *parts)


def tasks(base: Path, head: Path) -> list[Figure]:
    """Scores of the adapter on the test set, by field."""
    keys: dict[str, None] = {}
    reports = [
        _at(read_report(root, "reports/evaluate.json"), "task.scores") or {}
        for root in (base, head)
    ]
    for report in reports:
        keys |= dict.fromkeys(sorted(report))
    return [Figure(f"test score, {key}", *(report.get(key) for report in reports)) for key in keys]


def gate(base: Path, head: Path) -> tuple[Figure, list[RuleChange]]:
    """The verdict, and every rule in the head's order, then those that are gone."""
    reports = [read_report(root, GATE) or {} for root in (base, head)]
    old, new = ({rule["name"]: rule for rule in report.get("rules", ())} for report in reports)
    names = [*new, *(name for name in old if name not in new)]
    verdict = Figure("verdict", *(report.get("verdict") for report in reports))
    return verdict, [RuleChange(name, old.get(name), new.get(name)) for name in names]


def _figures(wanted: tuple[tuple[str, str, str], ...], base: Path, head: Path) -> Iterator[Figure]:
    for file, key, words in wanted:
        values = [_at(read_report(root, file), key) for root in (base, head)]
        if values != [None, None]:
            yield Figure(words, *values)


def _at(report: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        report = report.get(part) if isinstance(report, Mapping) else None
    return report
