"""What a reviewer should stop at in how the adapter is trained."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hashtune.review.case import Case, is_number, listed
from hashtune.review.settings import effective_batch


def _rate_and_batch(case: Case) -> Iterator[str]:
    before, after = effective_batch(case.base), effective_batch(case.head)
    rate = "optim.lr" in case.changes
    if before == after or before is None or after is None:
        return
    if rate:
        yield (
            f"The learning rate changed together with the effective batch ({before} to {after} rows"
            " a step): which of the two did it cannot be told."
        )
    else:
        yield (
            f"The effective batch changed ({before} to {after} rows a step) and the learning rate"
            " did not: what suited the old batch may not suit this one."
        )


def _rows_hold(case: Case) -> Iterator[str]:
    """Rows per step stay the same, and what a row holds does not."""
    if touched := case.touched("data.packing", "data.max_seq_len"):
        yield (
            f"A row holds other documents ({listed(touched)}): documents and trained tokens per"
            " step change though rows per step may not, which acts as another batch size; with"
            " `duration.max_steps` it also decides how much of the data is seen."
        )


def _scale(case: Case) -> Iterator[str]:
    """PEFT multiplies an update by alpha / r, rslora by alpha / sqrt(r)."""
    if case.touched("method.r", "method.alpha", "method.variant"):
        before, after = (_lora_scale(side) for side in (case.base, case.head))
        if before != after and before is not None and after is not None:
            yield (
                f"The scale of the LoRA update goes from {before:.4g} to {after:.4g} (alpha over"
                " rank; of rslora over its root): that works like another learning rate."
            )


def _lora_scale(params: Mapping[str, Any]) -> float | None:
    method = params.get("method")
    found = method if isinstance(method, Mapping) else {}
    rank, alpha = found.get("r"), found.get("alpha")
    if not (is_number(rank) and is_number(alpha)) or float(str(rank)) <= 0:
        return None
    size = float(str(rank))
    return float(str(alpha)) / (math.sqrt(size) if found.get("variant") == "rslora" else size)


def _cut(case: Case) -> Iterator[str]:
    duration = case.head.get("duration")
    most = duration.get("max_steps") if isinstance(duration, Mapping) else None
    if (
        most is not None
        and "duration.epochs" in case.changes
        and ("duration.max_steps" not in case.changes)
    ):
        yield (
            f"`duration.epochs` changed, and `duration.max_steps` ({most}) cuts the run before and"
            " after: where an epoch has as many steps, nothing is trained longer or shorter."
        )


def _determinism(case: Case) -> Iterator[str]:
    change = case.changes.get("determinism.mode")
    if change and change.new == "off":
        yield "determinism.mode is off: the same inputs may give other bits, and verify may differ."


def _seed_alone(case: Case) -> Iterator[str]:
    seeds = {"seed", "data_seed", "init_seed"}
    changed = {key for key in case.changes if key != "run.experiment"}
    if changed and changed <= seeds and not case.rows:
        yield "Only seeds changed: a difference in the figures is seed noise, not progress."


TRAINING: tuple[Callable[[Case], Iterator[str]], ...] = (
    *(_rate_and_batch, _rows_hold, _scale, _cut, _determinism),
)
LAST: tuple[Callable[[Case], Iterator[str]], ...] = (_seed_alone,)
