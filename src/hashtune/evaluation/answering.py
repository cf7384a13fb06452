"""A model answers the suites: generated answers and choices become scored rows.

Every row keeps what the model gave ("output"), so that a gate can tell an adapter without effect
from one that changes answers without changing scores.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hashtune.evaluation.suites import SuiteItem, score_generated

if TYPE_CHECKING:
    from hashtune.evaluation.engines.base import Engine
    from hashtune.evaluation.generate import Progress
    from hashtune.evaluation.kept import Kept


def answer_suites(
    engine: "Engine",
    items: Sequence[SuiteItem],
    *,
    max_new_tokens: int,
    batch_size: int,
    progress: "Progress",
    kept: "Kept | None" = None,
) -> list[dict[str, Any]]:
    """One row per item, in item order: id, suite, slice, kind, chance (the score that
    guessing gives), output, score, tokens, finished.

    The output of a choice item is the chosen text and the log-probabilities (nats, 6 decimals).
    `kept` has the batches of an earlier, killed run.
    """
    from hashtune.evaluation.choices import best

    generated = [item for item in items if item.kind == "generated"]
    answers = engine.answers(
        [item.messages for item in generated],
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        progress=progress,
        kept=kept,
    )
    rows = {
        item.id: _row(
            item,
            output=answer.text,
            score=score_generated(item, answer.text),
            tokens=answer.tokens,
            finished=answer.finished,
        )
        for item, answer in zip(generated, answers, strict=True)
    }
    chosen = [item for item in items if item.kind == "choice"]
    scored = engine.likelihoods(chosen, batch_size=batch_size, progress=progress, kept=kept)
    for item, scores in zip(chosen, scored, strict=True):
        index = best(scores)
        rounded = [round(score, 6) for score in scores]
        output = f"{item.choices[index]} {rounded}"
        hit = float(index == item.answer)
        rows[item.id] = _row(item, output=output, score=hit, tokens=0, finished=True)
    return [rows[item.id] for item in items]


def suite_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Items, mean score over all of them (None without items), and a table by slice: items, mean
    score, and of generated answers (where there are any) their number, the share that reached a
    stop, and the mean of their tokens."""
    slices: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        slices.setdefault(row["slice"], []).append(row)
    return {
        "items": len(rows),
        "score": _mean(rows, "score") if rows else None,
        "slices": {name: _of_slice(members) for name, members in sorted(slices.items())},
    }


def _of_slice(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {"items": len(rows), "score": _mean(rows, "score")}
    if generated := [row for row in rows if row["kind"] == "generated"]:
        told["generated"] = {
            "items": len(generated),
            "finished_share": _mean(generated, "finished"),
            "tokens_mean": _mean(generated, "tokens"),
        }
    return told


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return round(fmean(float(row[key]) for row in rows), 6)


def _row(
    item: SuiteItem, *, output: str, score: float, tokens: int, finished: bool
) -> dict[str, Any]:
    return {
        "id": item.id,
        "suite": item.suite,
        "slice": item.slice,
        "kind": item.kind,
        "chance": item.chance,
        "output": output,
        "score": score,
        "tokens": tokens,
        "finished": finished,
    }
