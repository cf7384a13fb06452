"""Guards of a run: a few non-finite steps are skipped and named, more stop it; early stopping."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.records import Row

PlacesOf = Callable[[Collection[str]], Mapping[str, str]]  # example ids to "source:line"


def name_rows(rows: Sequence[Row], places: PlacesOf) -> str:
    """The rows by number, and their examples by id and, where known, source and line:
    "row 4: 5f0c (triage:12), 81aa; row 5: 77b2"."""
    known = places([example for row in rows for example in row.example_ids])
    named = []
    for row in rows:
        examples = [f"{e} ({known[e]})" if e in known else e for e in row.example_ids]
        named.append(f"row {row.row}: {', '.join(examples)}")
    return "; ".join(named)


def check_skips(skipped: Sequence[int], *, allowed: int, named: str) -> None:
    """Raise InputError when more steps were skipped than allowed.

    Args:
        skipped: the 1-based steps skipped so far, the newest last.
        allowed: checkpoint.max_skipped_steps.
        named: what the newest skipped step saw, from `name_rows`.
    """
    if len(skipped) > allowed:
        raise InputError(
            Finding(
                "non-finite",
                f"{len(skipped)} steps with a non-finite loss or gradient ({list(skipped)}); the "
                f"last one saw {named}",
                field="optim.lr",
                fix="lower optim.lr, or look at these examples: "
                f"`hashtune inspect --step {skipped[-1]}`",
            )
        )


def check_eval_loss(loss: float, *, step: int) -> None:
    """Raise InputError for a held-out loss that is not finite: it cannot rank checkpoints."""
    if not math.isfinite(loss):
        raise InputError(
            Finding(
                "non-finite",
                f"the eval loss after step {step} is {loss}",
                field="optim.lr",
                fix="lower optim.lr, or look at the eval data",
            )
        )


def evaluations_since_best(points: Sequence[Mapping[str, Any]]) -> int:
    """Evaluations after the one with the lowest eval loss (the first of equal ones).

    A function of the curves alone: a resumed run counts on where the stopped one was.
    """
    losses = [point["eval/loss"] for point in points if "eval/loss" in point]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0
