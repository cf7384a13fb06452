"""reports/plan.json as text for a terminal: bars, changes, machines. Takes the report's content."""

from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.memory.chart import ASCII, chart
from hashtune.memory.report import loss, pace

GB = 1e9


def bars(report: Mapping[str, Any], *, marks: str = ASCII, color: bool = False) -> list[str]:
    """A bar a bucket; see chart.py."""
    available = round(report["available_gb"] * GB)
    return chart(report["buckets_bytes"], available=available, marks=marks, color=color)


def facts(report: Mapping[str, Any]) -> dict[str, object]:
    """What is decided, as label and value."""
    model, batch = report["model"], report["micro_batch"]
    found: dict[str, object] = {
        "needed": f"{report['needed_gb']:.3f} of {report['available_gb']:.3f} GB",
        "trainable": f"{model['trainable']} ({model['trainable_share']:.2%})",
        "micro-batch": f"{batch['rows']} x {batch['longest_row']} tokens",
        "longest row that fits": f"{report['longest_row_that_fits']} tokens",
        "largest micro-batch that fits": f"{report['largest_micro_that_fits']} rows",
    }
    if longest := report.get("longest_example"):
        found["longest example"] = (
            f"{longest['id']}, {longest['tokens']} tokens, row {longest['row']}"
        )
    found["time"] = f"{report['hours']:.3g} h for {report['tokens']} tokens"
    found["cost"] = f"{report['cost']:.2f} {report['currency']}"
    return found | (_rehearsed(report["rehearsal"]) if report.get("rehearsal") else {})


def _rehearsed(report: Mapping[str, Any]) -> dict[str, object]:
    """What the step took on fake tensors, beside the closed form."""
    phases = (f"{name} {held / GB:.3f}" for name, held in report["phases_bytes"].items())
    return {
        "rehearsed peak": f"{report['peak_bytes'] / GB:.3f} GB in the {report['peak_phase']}, "
        f"closed form {report['closed_form_bytes'] / GB:.3f} GB",
        "rehearsed reserved": f"{report['reserved_bytes'] / GB:.3f} GB",
        "rehearsed phases": ", ".join(phases),
    }


def answer(report: Mapping[str, Any]) -> str:
    """Which machine, in a sentence."""
    fitting = [card["name"] for card in report["cards"] if card["fits"]]
    if (best := report["cheapest_card"]) is not None:
        card = next(card for card in report["cards"] if card["name"] == best)
        money = f"{card['cost']:.2f} {report['currency']} for {report['tokens']:,} tokens"
        return f"fits {', '.join(fitting)}; cheapest: {best}, {money}"
    helped = [
        f"{card['name']} with {' '.join(card['enough_together'])}"
        for card in sorted(report["cards"], key=lambda card: card["cost"])
        if card["enough_together"] and card["price_per_hour"]
    ]
    if helped:
        return f"fits none with a price as it is; {'; '.join(helped)}"
    return "fits none with a price, and no changes here are enough"


def changes(report: Mapping[str, Any], *, most: int | None = None) -> list[str]:
    """The changes in the order to try them: saving, time, kind, lost data."""
    rows = [
        [
            change["setting"],
            f"saves {change['saves_gb']:.3f} GB",
            pace(change["times_as_long"]),
            _kind(change),
            "enough" if change["enough"] and not report["fits"] else "",
        ]
        for change in report["changes"][:most]
    ]
    return aligned(rows)


def _kind(change: Mapping[str, Any]) -> str:
    if change["kind"] == "data":
        if "lost_examples" not in change:
            return "drops longer examples"
        return loss(change["lost_examples"], change["of_examples"], change["lost_tokens"])
    words = {"same": "same run", "other": "other numbers", "less": "fewer trained"}
    return words[change["kind"]]


def machines(report: Mapping[str, Any]) -> list[str]:
    """A line for each machine of conf/hardware, by price an hour."""
    head = ["machine", "fits", "needs GB", "has GB", "longest row", "micro", "hours", "cost", ""]
    rows = [
        [
            card["name"],
            "yes" if card["fits"] else "no",
            f"{card['needed_gb']:.2f}",
            f"{card['available_gb']:.1f}",
            str(card["longest_row"]),
            str(card["largest_micro"]),
            f"{card['hours']:.3g}" if _runs(card) else "",
            f"{card['cost']:.2f}" if _runs(card) and card["price_per_hour"] else "",
            _remark(card, report),
        ]
        for card in report["cards"]
    ]
    return aligned([head, *rows])


def _runs(card: Mapping[str, Any]) -> bool:
    """Whether it fits, as it is or with changes."""
    return bool(card["fits"] or card["enough_together"])


def _remark(card: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    words = []
    if card["name"] == report["cheapest_card"]:
        words.append("cheapest that fits")
    if card["precision"] != report["precision"]:
        words.append(f"in {card['precision']}")
    if not card["fits"]:
        path = card["enough_together"]
        words.append(f"fits with {' '.join(path)}" if path else "no change is enough")
    return ", ".join(words)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, two spaces apart, nothing at the end of a line."""
    if not rows:
        return []
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
