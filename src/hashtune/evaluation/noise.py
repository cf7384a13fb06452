"""The noise floor: how far scores move when the same model answers in other batches.

Padding and the shape of a batch change the order of floating point sums, so a near tie between two
tokens can turn. A few items are answered again under plans other than the compared one; per plan
and score field the floor takes the mean of |change| over these items, which bounds the change of
their mean score. It is an estimate from few items: 0 of 2 says that noise is rare, not that there
is none. With n items it moves in steps of 1/n, so it errs to the large side once an item turns.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

Item = TypeVar("Item")
Row = Mapping[str, Any]
Scores = Mapping[str, float]

BATCH_SIZES = (1, 4, 16)


def chosen(items: Sequence[Item], count: int) -> list[int]:
    """Indices of `count` items spread evenly, the first among them; all when there are fewer."""
    count = min(count, len(items))
    return [index * len(items) // count for index in range(count)]


def plans(items: int, *, compared: int) -> dict[str, tuple[int, list[list[int]]]]:
    """Plans beside the compared one: name to (batch size, groups of item numbers that are answered
    apart). Sizes that make the same single batch are one plan.

    Every second item apart, in reverse, gives rows other neighbours at the compared batch size.
    """
    whole = [list(range(items))]
    sizes = sorted({min(size, items) for size in BATCH_SIZES}) if items else []
    sizes = [size for size in sizes if not size == compared == 1]  # alone is alone: the same batch
    found = {f"batch_{size}": (size, whole) for size in sizes}
    if items > 2:  # halves of one row are batches of 1
        numbers = list(range(items))
        found["order"] = (compared, [numbers[1::2][::-1], numbers[::2][::-1]])
    return found


def noise_floor(
    rows: Sequence[Row],
    count: int,
    *,
    compared: int,
    answer: Callable[[list[int], int], Sequence[Row]],
    scores: Callable[[Row], Scores],
    output: str,
) -> dict[str, Any]:
    """What the reports say of the noise: items, plans, outputs_changed (the most of any plan),
    scores_changed (items, likewise), floor (in score, 6 decimals).

    Args:
        rows: of the compared run, one per item.
        count: of items that are answered again; 0 measures nothing, and the floor is None (so
            does one item where the compared batches are of one).
        compared: batch size of the compared run.
        answer: (indices of items, batch size) to their rows, answered anew.
        scores: of a row, by field.
        output: the field of a row that holds the model's own words.
    """
    picked = chosen(rows, count) if count else []
    ran = plans(len(picked), compared=compared)
    if not ran:
        return {"items": 0, "plans": [], "floor": None}
    outputs, items, floor = 0, 0, 0.0
    for size, groups in ran.values():
        changes: dict[str, list[float]] = {}
        turned, moved = 0, 0
        for group in groups:
            indices = [picked[number] for number in group]
            for index, row in zip(indices, answer(indices, size), strict=True):
                old, new = scores(rows[index]), scores(row)
                turned += row[output] != rows[index][output]
                moved += old != new
                for field in old:
                    changes.setdefault(field, []).append(abs(old[field] - new[field]))
        outputs, items = max(outputs, turned), max(items, moved)
        floor = max(floor, *(fmean(values) for values in changes.values()))
    return {
        "items": len(picked),
        "plans": list(ran),
        "outputs_changed": outputs,
        "scores_changed": items,
        "floor": round(floor, 6),
    }
