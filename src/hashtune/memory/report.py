"""The plan in words and figures: reports/plan.json, the closing table, the refusal."""

from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.memory.closed_form import Workload, full_logits_bytes
from hashtune.memory.decisions import GB, Decision, Duration
from hashtune.memory.shapes import adapted_modules, match_targets


def refuse(decision: Decision, *, hardware: str) -> None:
    """Raise InputError when the estimate does not fit: the largest bucket, needed and available
    GB, and every change that helps with its saving."""
    if decision.fits:
        return
    largest = decision.buckets[decision.dominant]
    message = (
        f"a training step needs {decision.needed / GB:.2f} GB and {hardware} has "
        f"{decision.available / GB:.2f} GB; the largest part is {decision.dominant} with "
        f"{largest / GB:.2f} GB"
    )
    raise InputError(
        Finding("does-not-fit", message, field="hardware.memory_gb", fix=_fix(decision))
    )


def _fix(decision: Decision) -> str:
    changes = [
        f"{change.setting} saves {change.saves / GB:.2f} GB{' (enough)' if change.enough else ''}"
        for change in decision.changes
    ]
    if any(change.enough for change in decision.changes):
        return "; ".join(changes)
    together = f"all of these together need {decision.together / GB:.2f} GB"
    last = "" if decision.together <= decision.available else ", still too much: a smaller base"
    return "; ".join([*changes, together + last])


def describe(
    work: Workload, decision: Decision, time: Duration, *, currency: str
) -> dict[str, Any]:
    """The content of reports/plan.json; GB are 1e9 bytes, everything follows from the inputs."""
    shape = work.shape
    logits = full_logits_bytes(tokens=work.tokens, vocab=shape.vocab)
    return {
        "fits": decision.fits,
        "buckets_bytes": decision.buckets,
        "dominant": decision.dominant,
        "needed_gb": gigabytes(decision.needed),
        "allocated_gb": gigabytes(decision.needed - decision.buckets["overhead"]),
        "available_gb": gigabytes(decision.available),
        "changes": [
            {"setting": change.setting, "saves_gb": gigabytes(change.saves)}
            for change in decision.changes
        ],
        "unchunked_logits_gb": {name: gigabytes(count) for name, count in logits.items()},
        "model": {
            "parameters": shape.parameters,
            "trainable": work.adapter_parameters,
            "trainable_share": rounded(work.adapter_parameters / shape.parameters),
            "adapted_modules": adapted_modules(shape, work.targets),
            "targets": match_targets(shape, work.targets).counts,
        },
        "micro_batch": {
            "rows": work.micro,
            "longest_row": work.longest_row,
            "most_trained_in_a_row": work.trained,
            "document_mask": work.masked,
        },
        "tokens": time.tokens,
        "flops": rounded(time.flops),
        "tokens_per_second": rounded(time.tokens_per_second),
        "hours": rounded(time.hours),
        "cost": rounded(time.cost),
        "currency": currency,
    }


def lines(report: dict[str, Any]) -> dict[str, object]:
    """The closing table of a report made by `describe`."""
    buckets = sorted(report["buckets_bytes"].items(), key=lambda item: (-item[1], item[0]))
    table: dict[str, object] = {f"  {name}": f"{count / GB:.3f} GB" for name, count in buckets}
    table["needed"] = f"{report['needed_gb']:.3f} of {report['available_gb']:.3f} GB"
    table["trainable"] = (
        f"{report['model']['trainable']} ({report['model']['trainable_share']:.2%})"
    )
    table["time"] = f"{report['hours']:.3g} h for {report['tokens']} tokens"
    table["cost"] = f"{report['cost']:.2f} {report['currency']}"
    for change in report["changes"][:3]:
        table[f"to save {change['saves_gb']:.3f} GB"] = change["setting"]
    return table


def gigabytes(count: float) -> float:
    """Bytes in GB (1e9), to the megabyte."""
    return round(count / GB, 3)


def rounded(value: float) -> float:
    """Six significant digits, so that a report holds no rounding noise."""
    return float(f"{value:.6g}")
