"""Stage plan: does it fit, how long does it take, what does it cost?

Reads build/base/manifest.json, build/pack/ and conf/hardware; writes reports/plan.json and
build/plan/fits, whose content never changes, so that another price or machine retrains nothing. A
run that does not fit is refused with the term to blame and the changes that help; no torch, about
a second. What fits is rehearsed on fake tensors where plan.rehearse says so (memory/rehearsal/).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.errors import InputError
from hashtune.memory import tables
from hashtune.memory.cards import every_card
from hashtune.memory.closed_form import Workload
from hashtune.memory.cost import duration
from hashtune.memory.decisions import Decision, Surroundings, decide
from hashtune.memory.family_shapes import common_names
from hashtune.memory.of_spec import workload
from hashtune.memory.positions import KEY, check_positions
from hashtune.memory.report import changes_first, describe, refuse
from hashtune.memory.shapes import read_shape
from hashtune.packing.worst_row import StepShape, longest_example, step_shape
from hashtune.records import Row
from hashtune.spec.branch import branch_step
from hashtune.spec.hardware import no_unit, peak_of, read_hardware
from hashtune.spec.schema import Spec
from hashtune.spec.workload import workload_sha256
from hashtune.store.changed_logits import changed_logits
from hashtune.store.manifest import read_manifest

MANIFEST = Path("build/base/manifest.json")
PACK = Path("build/pack")
FITS = Path("build/plan/fits")


def run() -> None:
    """Estimate memory, time and cost of the planned steps.

    Raises:
        InputError: the step does not fit; the base has no formula or too few positions, or changes
            its logits; a target matches no module; the hardware has no unit for the precision.
    """
    spec = frame.read_spec(
        *("method", "quantization", "optim", "batch", "activations", "precision", "hardware"),
        *("tokenizer", "kernels", "schedule", "plan"),
    )
    rows = writers.read_parquet(PACK / "train.parquet")
    first = branch_step(spec.schedule.branch_from, Path.cwd())
    steps = writers.read_parquet(PACK / "steps.parquet")[first:]
    worst, longest = step_shape(rows), longest_example(rows)
    config = read_manifest(MANIFEST).config
    if findings := changed_logits(config) + no_unit(spec.hardware, spec.precision):
        raise InputError(findings)
    known = common_names(config)
    check_positions(known, longest=longest["tokens"], virtual=spec.method.virtual_tokens or 0)
    work = workload(spec, read_shape(config), worst)
    around = Surroundings(
        hardware=spec.hardware,
        precision=spec.precision,
        context=worst.context,
        grad_accum=spec.batch.grad_accum,
        lengths=[length for row in rows for length in row["lengths"]],
        positions=known.get(KEY),
    )
    decision = decide(work, around)
    refuse(decision, hardware=spec.hardware.name, where=_where(worst, longest))
    tokens = _tokens(work, steps)
    time = _duration(spec, work, worst, tokens)
    cards = every_card(work, around, read_hardware(Path.cwd()).values(), tokens=tokens)
    report = describe(work, decision, time, cards, currency=spec.hardware.currency) | {
        "hardware": spec.hardware.name,
        "precision": spec.precision,
        "row": worst.row,
        "first_step": first + 1,
        "longest_example": longest,
        # train knows its plan by it
        "workload_sha256": workload_sha256(spec, [MANIFEST, *sorted(PACK.glob("*.parquet"))]),
    }
    report["rehearsal"] = _rehearsal(spec, config, rows, decision) if spec.plan.rehearse else None
    frame.write_report("plan", report)
    writers.write_text(FITS, "fits\n")
    _tell(report)


def _rehearsal(
    spec: Spec, config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], decision: Decision
) -> dict[str, Any]:
    """The step on fake tensors. What the closed form refuses does not come here, and needs no
    torch."""
    from hashtune.memory.rehearsal import report as rehearsals

    held_out = writers.read_parquet(PACK / "eval.parquet")
    rehearsal = rehearsals.rehearsed(
        spec, config, [Row(**row) for row in rows], [Row(**row) for row in held_out]
    )
    overhead = decision.buckets["overhead"]
    report = rehearsals.describe(
        rehearsal,
        device=spec.hardware.device,
        available=decision.available,
        overhead=overhead,
        closed=decision.needed - overhead,
    )
    rehearsals.refuse(
        report,
        hardware=spec.hardware.name,
        available=decision.available,
        fix=changes_first(decision),
    )
    return report


def _where(worst: StepShape, longest: Mapping[str, Any]) -> str:
    """The longest row decides, not the average one."""
    return (
        f". Row {worst.row} with {worst.longest_row} tokens decides; the longest example is "
        f"{longest['id']} with {longest['tokens']}"
    )


def _tokens(work: Workload, steps: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of all steps; a prompt's virtual ones pass through the model too."""
    prompt = work.virtual_tokens if work.soft == "prompt" else 0
    return sum(step["tokens"] + len(step["rows"]) * prompt for step in steps)


def _duration(spec: Spec, work: Workload, worst: StepShape, tokens: int) -> Any:
    peak = peak_of(spec.hardware.peak_tflops, spec.precision)
    assert peak is not None  # no_unit refuses it
    return duration(
        work,
        tokens=tokens,
        context=worst.context,
        peak_tflops=peak,
        expected_utilisation=spec.hardware.expected_utilisation,
        price_per_hour=spec.hardware.price_per_hour,
    )


def _tell(report: Mapping[str, Any]) -> None:
    for line in tables.bars(report):
        frame.say(f"  {line}")
    frame.closing_table(f"fits on {report['hardware']}", tables.facts(report))
    for line in tables.changes(report, most=3):
        frame.say(f"  {line}")


if __name__ == "__main__":
    frame.main("plan", run)
