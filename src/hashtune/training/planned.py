"""What plan expected of this run's memory, and what its first steps show of it.

    bucket      planned                                        measured
    weights     of the base as stored, of all in full          parameters and buffers
    adapter     what is trained beside it                      the trained parameters
    gradients   of what is trained                             there at the end of the backward
    optimizer   its state                                      after the first update
    working     activations, logits and loss, workspaces       the peak without the four above

Read from reports/plan.json, which DVC does not watch for train: a corrected formula retrains
nothing, and the figures change no bit, since they can only stop a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.training.first_changes import Blamed, Changes
from hashtune.training.memory_probe import Measured

GB = 1e9
STATIC = ("weights", "adapter", "gradients", "optimizer")
NOT_TENSORS = "overhead"  # libraries, CUDA's context: outside of what is measured


@dataclass(frozen=True, slots=True)
class Planned:
    """Bytes by bucket, their sum, and what saves how many GB, largest saving first. `phases`: the
    peaks of the rehearsal, where there was one; then `peak` is its."""

    buckets: dict[str, int]
    peak: int
    changes: list[tuple[str, float]]
    phases: dict[str, int]


def read_planned(file: Path, workload: str) -> tuple[Planned | None, str]:
    """The plan of this workload, or None, and a line that says so.

    Args:
        file: the report of plan.
        workload: from workload_sha256, of this run.
    """
    if not file.is_file():
        return None, f"no {file}: what is measured is compared with nothing"
    report = writers.read_json(file)
    if not isinstance(report, Mapping) or report.get("workload_sha256") != workload:
        return None, f"{file} is of another run: what is measured is compared with nothing"
    planned = _planned(report)
    return planned, f"{planned.peak / GB:.2f} GB of tensors are planned"


def _planned(report: Mapping[str, Any]) -> Planned:
    figures: dict[str, int] = dict(report["buckets_bytes"])
    figures.pop(NOT_TENSORS, None)
    held: dict[str, int] = report["static_bytes"]
    buckets = {name: held[name] for name in STATIC if name in held}
    rehearsal = report.get("rehearsal") or {}
    static = sum(buckets.values())
    peak = int(rehearsal.get("peak_bytes", sum(figures.values())))
    changes = [(str(c["setting"]), float(c["saves_gb"])) for c in report["changes"]]
    phases = dict(rehearsal.get("phases_bytes", {}))
    return Planned({**buckets, "working": max(0, peak - static)}, peak, changes, phases)


def compare(
    planned: Planned | None, measured: Measured | None, *, margin: float
) -> dict[str, Any] | None:
    """Planned beside measured, for reports/machine/train.json; None without a measurement."""
    if measured is None:
        return None
    expected = _buckets(planned)
    return {
        "margin": margin,
        "steps": measured.steps,
        "updates": measured.updates,
        "row": measured.row,
        "rows": measured.rows,
        "tokens": measured.tokens,
        "seconds": measured.seconds,
        "peak_bytes": {"planned": planned.peak if planned else None, "measured": measured.peak},
        "peak_phase": measured.peak_phase,
        "reserved_bytes": measured.reserved,
        "buckets_bytes": {
            name: {"planned": expected.get(name), "measured": measured.buckets.get(name)}
            for name in dict.fromkeys([*expected, *measured.buckets])
        },
        "phases_bytes": {
            phase: {"planned": planned.phases.get(phase) if planned else None, "measured": peak}
            for phase, peak in measured.phases.items()
        },
    }


def check_margin(
    planned: Planned | None, measured: Measured, *, margin: float, changes: Changes
) -> None:
    """Raise InputError where the steps took more than the plan by more than the margin."""
    if planned is None or measured.peak <= planned.peak * (1 + margin):
        return
    over = {name: held - planned.buckets.get(name, 0) for name, held in measured.buckets.items()}
    worst = max(over, key=lambda name: over[name])
    share = measured.peak / planned.peak - 1
    message = (
        f"the first steps took {measured.peak / GB:.3f} GB of tensors, {100 * share:.0f} % more "
        f"than the planned {planned.peak / GB:.3f} GB, and plan.margin allows {100 * margin:g} %; "
        f"most exceeds {_words(worst, measured)}: {measured.buckets[worst] / GB:.3f} GB, planned "
        f"{planned.buckets.get(worst, 0) / GB:.3f} GB"
    )
    first = changes.first(_blamed(worst, measured), planned.changes)
    fix = f"{first}; or where the machine has the room -S plan.margin={_above(share)}"
    raise InputError(Finding("exceeds-plan", message, field="plan.margin", fix=fix))


def _words(bucket: str, measured: Measured) -> str:
    if bucket != "working":
        return bucket
    place = f"in the {measured.peak_phase} over row {measured.row}"
    return f"working memory (activations, logits and workspaces; the peak is {place})"


def _blamed(bucket: str, measured: Measured) -> Blamed:
    if bucket == "weights":
        return "weights"
    if bucket != "working":
        return "state"
    return "logits" if measured.peak_phase == "loss" else "activations"


def _above(share: float) -> float:
    """The next hundredth above a share."""
    return (int(100 * share) + 1) / 100


def memory_lines(planned: Planned | None, measured: Measured) -> list[str]:
    """The comparison for people."""
    beside = f", planned {planned.peak / GB:.3f} GB" if planned else ""
    taken = f"{measured.steps} step{'s' if measured.steps > 1 else ''}"
    lines = [
        f"memory of {taken} over {measured.tokens} tokens (row {measured.row}): "
        f"{measured.peak / GB:.3f} GB of tensors at most, in the {measured.peak_phase}{beside}"
    ]
    expected = {name: f" ({held / GB:.3f})" for name, held in _buckets(planned).items()}
    parts = [f"{n} {b / GB:.3f}{expected.get(n, '')}" for n, b in measured.buckets.items()]
    return [*lines, f"  in GB{' (planned)' if planned else ''}: {', '.join(parts)}"]


def _buckets(planned: Planned | None) -> dict[str, int]:
    return planned.buckets if planned else {}
