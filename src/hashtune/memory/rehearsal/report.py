"""The rehearsal in reports/plan.json, beside the closed form, and the refusal of what fails it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.memory.rehearsal.run import Settings, rehearse
from hashtune.memory.rehearsal.table import Rehearsal, fits_in, kind
from hashtune.records import Row
from hashtune.spec.schema import Spec
from hashtune.training.plan import worst_rows

GB = 1e9
MODULES = 10


def rehearsed(
    spec: Spec, config: Mapping[str, Any], rows: Sequence[Row], eval_rows: Sequence[Row]
) -> Rehearsal:
    """Two steps over the worst micro-batch that the plan reckons with, and an evaluation of the
    longest eval rows. InputError as building the model raises it."""
    vocab = int(config.get("vocab_size") or 0)
    added = len(spec.tokenizer.added_tokens)
    settings = Settings(
        config=config,
        method=spec.method,
        quantization=spec.quantization,
        optim=spec.optim,
        batch=spec.batch,
        activations=spec.activations,
        precision=spec.precision,
        kernels=spec.kernels,
        device=spec.hardware.device,
        tokens=tuple(range(vocab, vocab + added)),  # as if none had a row yet
    )
    evaluated = worst_rows(eval_rows, spec.batch)[: spec.batch.micro] if eval_rows else []
    return rehearse(settings, worst_rows(rows, spec.batch), evaluated)


def describe(
    rehearsal: Rehearsal, *, device: str, available: int, overhead: int, closed: int
) -> dict[str, Any]:
    """Plain data, equal for equal inputs.

    Args:
        rehearsal: of the run.
        device: "cuda", where segments of the allocator count, or "cpu", where tensors do.
        available, overhead: bytes of the machine, and of what is no tensor.
        closed: bytes that the closed form allocates at most, overhead left out.
    """
    room = available - overhead
    held = rehearsal.reserved if device == "cuda" else rehearsal.peak
    fits = fits_in(rehearsal.events, room) if device == "cuda" else held <= room
    return {
        "fits": fits,
        "needed_gb": round((held + overhead) / GB, 3),
        "peak_bytes": rehearsal.peak,
        "peak_phase": rehearsal.peak_phase,
        "rounded_bytes": rehearsal.rounded,
        "reserved_bytes": rehearsal.reserved,
        "closed_form_bytes": closed,
        "closed_form_over_peak": round(closed / rehearsal.peak, 4),
        "phases_bytes": {name: phase.peak for name, phase in rehearsal.phases.items()},
        "phases_reserved_bytes": {n: phase.reserved for n, phase in rehearsal.phases.items()},
        "modules_bytes": dict(list(rehearsal.modules.items())[:MODULES]),
        "largest_tensors": [
            {
                "bytes": birth.size,
                "shape": list(birth.shape),
                "dtype": birth.dtype,
                "line": birth.line,
                "module": birth.module,
            }
            for birth in rehearsal.largest
        ],
        "most_by_line": [
            {
                "bytes": group.size,
                "tensors": group.count,
                "largest": list(group.shape),
                "dtype": group.dtype,
                "line": group.line,
                "module": group.module,
            }
            for group in rehearsal.groups
        ],
        "assumed": list(rehearsal.assumed),
    }


def refuse(report: Mapping[str, Any], *, hardware: str, available: int, fix: str) -> None:
    """Raise InputError where the rehearsal does not fit: its phase, its largest tensor and the line
    that made it. `fix`: what the closed form would change first."""
    if report["fits"]:
        return
    largest = report["largest_tensors"][0]
    message = (
        f"the rehearsed step needs {report['needed_gb']:.2f} GB and {hardware} has "
        f"{available / GB:.2f} GB; its peak is in the phase {report['peak_phase']}, the largest "
        f"tensor is {kind(largest['module']) or 'loaded'}'s with {largest['bytes'] / GB:.2f} GB "
        f"({largest['line']})"
    )
    raise InputError(Finding("does-not-fit", message, field="hardware.memory_gb", fix=fix))
