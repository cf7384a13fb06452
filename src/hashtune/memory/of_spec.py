"""From a spec to the workload of its training step."""

from dataclasses import replace
from typing import Any

from hashtune.memory.closed_form import LOSS_CHUNK, Workload
from hashtune.memory.decisions import GB
from hashtune.memory.shapes import Shape
from hashtune.packing.worst_row import StepShape
from hashtune.spec.methods import FULL, SOFT
from hashtune.spec.precision import stored_type
from hashtune.spec.schema import Method, Spec


def workload(spec: Spec, shape: Shape, worst: StepShape) -> Workload:
    """The step of this spec on a base of this shape, with `worst` as its longest row.

    Reads method, quantization, optim, batch, activations, precision, kernels, hardware and
    tokenizer.added_tokens.
    """
    added = len(spec.tokenizer.added_tokens)
    fused = spec.kernels == "fused"
    return Workload(
        shape=replace(shape, vocab=shape.vocab + added),  # as if none had a row yet
        quantization=spec.quantization.type,
        double_quant=spec.quantization.double_quant,
        precision=stored_type(spec.precision),
        master_weights=spec.optim.master_weights,
        optimizer=spec.optim.name,
        momentum=spec.optim.beta1 > 0,  # sgd's; the others keep theirs whatever it is
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
        accumulates=spec.batch.grad_accum > 1,
    )


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
