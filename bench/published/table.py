"""The page: every point with signed errors, the summaries, and what is not scored."""

from collections.abc import Callable, Sequence

from published.peers import PEERS
from published.predict import Prediction
from published.rows import FURTHER, NOT_SCORED, Point
from published.score import signed_error, summary

Found = Sequence[tuple[Point, Prediction]]
Pick = Callable[[Prediction], int | None]
RULES: dict[str, Pick] = {
    "rehearsal": lambda p: p.rehearsal,
    "closed form": lambda p: p.closed,
    **{name: (lambda p, name=name: p.peers.get(name)) for name in PEERS},
}
HEAD = """# The memory plan beside published measurements

Written by `PYTHONPATH=src python bench/plan_vs_published.py --write docs/plan_vs_published.md`.
Signed errors: predicted / measured - 1. Rows are those of the published table; "+" marks further
rows of the same two tables. A is allocated, R reserved. Where a run ended out of memory the
prediction is judged: too large for the card, or not.
"""


def errors_of(found: Found, pick: Pick) -> list[float]:
    """Signed errors of the points with a measurement that this rule answers."""
    pairs = [(pick(told), point.measured) for point, told in found]
    return [signed_error(said, bytes_) for said, bytes_ in pairs if said and bytes_]


def wrong_verdicts(found: Found) -> list[str]:
    """Runs that ended out of memory and are said to fit."""
    return [
        f"row {point.row}, {point.label}: ended out of memory, {told.rehearsal / 1e9:.2f} GB said"
        for point, told in found
        if point.measured is None and told.rehearsal <= point.card
    ]


def page(found: Found) -> str:
    """Markdown."""
    names = list(RULES)
    lines = [HEAD, "| row | model | run | kind | measured GB | rehearsed GB | " + " | ".join(names)]
    lines[-1] += " |"
    lines.append("|---|---|---|---|--:|--:|" + "--:|" * len(names))
    lines += [_line(point, told) for point, told in found]
    notes = [f"Row {p.row}, {p.label}: {p.note}." for p, _ in found if p.note]
    lines += ["", *notes, "", "## Summary", "", *_summaries(found), "", "## Not scored", ""]
    lines += [f"- rows {rows}: {why}" for rows, why in NOT_SCORED.items()]
    return "\n".join(lines) + "\n"


def _line(point: Point, told: Prediction) -> str:
    measured = "out of memory" if point.measured is None else f"{point.measured / 1e9:.2f}"
    cells = [point.row, point.model, point.label, point.kind, measured]
    cells.append(f"{told.rehearsal / 1e9:.2f}")
    cells += [_cell(point, pick(told)) for pick in RULES.values()]
    return "| " + " | ".join(cells) + " |"


def _cell(point: Point, said: int | None) -> str:
    if said is None:
        return "none"
    if point.measured is None:
        return "too large" if said > point.card else "fits"
    return f"{100 * signed_error(said, point.measured):+.1f} %"


def _summaries(found: Found) -> list[str]:
    lines = ["| rule | points | median | 90th percentile | largest |", "|---|--:|--:|--:|--:|"]
    further = {id(point) for point in FURTHER}
    listed = [pair for pair in found if id(pair[0]) not in further]
    for suffix, part in (("", found), (", rows of the file alone", listed)):
        for name, pick in RULES.items():
            if errors := errors_of(part, pick):
                told = summary(errors)
                shown = (told.median, told.p90, told.largest)
                cells = " | ".join(f"{100 * value:.1f} %" for value in shown)
                lines.append(f"| {name}{suffix} | {told.count} | {cells} |")
    return lines
