"""How long the stages that rerun take, by what the base's machine measured, and what that costs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune.errors import InputError
from hashtune.lineage.lock import lookup, packed_rows
from hashtune.review.reports import read_report
from hashtune.review.reruns import Pipeline, Rerun
from hashtune.review.settings import effective_batch

SECONDS = ("seconds", "train_seconds", "eval_seconds")
PER_HOUR = 3600
PACKED = Path("reports/pack.json")


def with_seconds(found: list[Rerun], base: Pipeline, head: Pipeline) -> list[Rerun]:
    """The same with the seconds that the last machine measured for the stage, train's scaled by the
    rows that the two runs see. None: never measured."""
    for rerun in found:
        report = read_report(base.root, f"reports/machine/{rerun.stage}.json")
        if report is None:
            continue
        measured = [
            float(value) for key in SECONDS if isinstance(value := report.get(key), int | float)
        ]
        rerun.seconds = sum(measured) if measured else None
        if rerun.stage == "train" and rerun.seconds is not None:
            rerun.seconds *= _times_as_long(base, head)
    return found


def _times_as_long(base: Pipeline, head: Pipeline) -> float:
    """How many times as many rows the head sees; 1 where either does not say how many. A head that
    has not packed its rows is taken to have as many as the base."""
    packed = _packed(base)
    old, new = rows_seen(base.params, packed), rows_seen(head.params, _packed(head) or packed)
    return new / old if old and new else 1.0


def rows_seen(params: Mapping[str, Any], packed: int | None) -> int | None:
    """Rows that a run trains on: those of all its epochs, or of `duration.max_steps` steps where
    that is less. `packed` are the rows of an epoch, None where they are not known. The smaller step
    at an epoch's end is counted whole."""
    each, steps, epochs = (
        effective_batch(params),
        *(_count(params, f"duration.{name}") for name in ("max_steps", "epochs")),
    )
    ends = [
        most * rows
        for most, rows in ((steps, each), (epochs, packed))
        if most is not None and rows is not None
    ]
    return min(ends, default=None)


def _count(params: Mapping[str, Any], key: str) -> int | None:
    found = lookup(params, key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _packed(pipeline: Pipeline) -> int | None:
    """Rows of an epoch, where the report of pack is that of the revision's params."""
    try:
        text = (pipeline.root / "dvc.lock").read_text(encoding="utf-8")
        return packed_rows(text, pipeline.params, PACKED, root=pipeline.root)
    except (FileNotFoundError, InputError):  # a damaged lock is told where it is compared
        return None


def cost(found: list[Rerun], head: Pipeline) -> tuple[float, float, str]:
    """(seconds of all stages that rerun, their price, currency) at hardware.price_per_hour."""
    seconds = sum(rerun.seconds or 0.0 for rerun in found)
    price = lookup(head.params, "hardware.price_per_hour")
    price = float(price) if isinstance(price, int | float) else 0.0
    return seconds, seconds / PER_HOUR * price, str(lookup(head.params, "hardware.currency") or "")
