"""Stage plan: does it fit, how long does it take, what does it cost?

Reads build/base/manifest.json and build/pack/; writes reports/plan.json and build/plan/fits, whose
content never changes, so that another price or machine retrains nothing. A run that does not fit
is refused with the term to blame and the changes that help; no torch, about a second.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hashtune import frame, writers
from hashtune.errors import InputError
from hashtune.memory.closed_form import LOSS_CHUNK, Workload
from hashtune.memory.decisions import GB, decide, duration
from hashtune.memory.positions import check_positions
from hashtune.memory.report import describe, lines, refuse
from hashtune.memory.shapes import read_shape
from hashtune.packing.stats import step_shape
from hashtune.spec.branch import branch_step
from hashtune.spec.methods import FULL, SOFT
from hashtune.spec.precision import stored_type
from hashtune.spec.schema import Method
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
            its logits; a target matches no module.
    """
    spec = frame.read_spec(
        *("method", "quantization", "optim", "batch", "activations", "precision", "hardware"),
        *("tokenizer", "kernels", "schedule"),
    )
    rows = writers.read_parquet(PACK / "train.parquet")
    first = branch_step(spec.schedule.branch_from, Path.cwd())
    steps = writers.read_parquet(PACK / "steps.parquet")[first:]
    worst = step_shape(rows)
    added = len(spec.tokenizer.added_tokens)
    fused = spec.kernels == "fused"
    config = read_manifest(MANIFEST).config
    if findings := changed_logits(config):
        raise InputError(findings)
    check_positions(
        config,
        longest=max((length for row in rows for length in row["lengths"]), default=0),
        virtual=spec.method.virtual_tokens or 0,
    )
    shape = read_shape(config)
    work = Workload(
        shape=replace(shape, vocab=shape.vocab + added),  # as if none had a row yet
        quantization=spec.quantization.type,
        double_quant=spec.quantization.double_quant,
        precision=stored_type(spec.precision),
        master_weights=spec.optim.master_weights,
        optimizer=spec.optim.name,
        **_method(spec.method),
        micro=spec.batch.micro,
        longest_row=worst.longest_row,
        trained=worst.trained,
        # a prefix makes attention take a mask: there are more keys than queries
        masked=(worst.masked and spec.batch.attention == "mask") or spec.method.type == "prefix",
        by_document=spec.batch.attention == "documents"
        and (fused or worst.masked or spec.batch.layout == "padding_free"),
        loss_chunk=LOSS_CHUNK,
        device=spec.hardware.device,
        overhead_bytes=round(spec.hardware.overhead_gb * GB),
        added_tokens=0 if spec.method.type == FULL else added,  # full trains all rows
        checkpointing=spec.activations.checkpointing,
        offload=spec.activations.offload,
        fused=fused,
    )
    decision = decide(work, available=round(spec.hardware.memory_gb * GB))
    refuse(decision, hardware=spec.hardware.name)
    prompt = work.virtual_tokens if work.soft == "prompt" else 0  # they pass through the model
    time = duration(
        work,
        tokens=sum(step["tokens"] + len(step["rows"]) * prompt for step in steps),
        context=worst.context,
        peak_tflops=spec.hardware.peak_tflops,
        expected_utilisation=spec.hardware.expected_utilisation,
        price_per_hour=spec.hardware.price_per_hour,
    )
    report: dict[str, Any] = describe(work, decision, time, currency=spec.hardware.currency)
    facts: dict[str, Any] = {
        "hardware": spec.hardware.name,
        "row": worst.row,
        "first_step": first + 1,
    }
    inputs = [MANIFEST, *sorted(PACK.glob("*.parquet"))]
    facts["workload_sha256"] = workload_sha256(spec, inputs)  # train knows its plan by it
    frame.write_report("plan", report | facts)
    writers.write_text(FITS, "fits\n")
    frame.closing_table(f"fits on {spec.hardware.name}", lines(report))


def _method(method: Method) -> dict[str, Any]:
    """The method's part of the workload. Fields of another method are null, see spec/methods.py."""
    targets = method.targets or ()
    return {
        "variant": method.variant or "lora",
        "r": method.r or 0,
        "targets": targets if isinstance(targets, str) else tuple(targets),
        "dropout": bool(method.dropout),
        "full": method.type == FULL,
        "soft": method.type if method.type in SOFT else None,
        "virtual_tokens": method.virtual_tokens or 0,
    }


if __name__ == "__main__":
    frame.main("plan", run)
