"""Proof on the real model and backend, before training: documents of a row do not see each other.

Two probes on one row of two documents A, B. Leak: with other tokens in A, B's hidden states stay
put. Parity: B in the row and B alone have the same states. A negative control without the document
mask must fire, or the probe itself is broken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.batches import Batch, collate, document_mask
from hashtune.training.model import Trainee

# Relative to the largest state: a masked key adds exact zeros, a kernel may sum in another order.
# fp16 has three bits more than bf16: an eighth of its tolerance.
TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 4e-3}
PROBE_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Probe:
    """Largest relative differences; `control` is the leak without a document mask."""

    leak: float
    parity: float
    control: float
    tolerance: float


def probe_row(rows: Sequence[Row]) -> Row | None:
    """A row of two short documents from real tokens, or None when no row is packed."""
    packed = next((row for row in rows if len(row.lengths) > 1), None)
    if packed is None:
        return None
    first, second = packed.lengths[:2]
    a, b = packed.input_ids[:first], packed.input_ids[first : first + second]
    a, b = a[:PROBE_TOKENS], b[:PROBE_TOKENS]
    labels = [IGNORE_INDEX] * (len(a) + len(b))
    return Row(packed.row, packed.example_ids[:2], [len(a), len(b)], [*a, *b], labels)


def run_probe(trainee: Trainee, row: Row) -> Probe:
    """Measure leak, parity and control; weights, RNG and mode are left as they were."""
    first = row.lengths[0]
    batch = collate([row])
    changed_ids = batch.input_ids.clone()
    changed_ids[0, :first] = changed_ids[0, :first].flip(0) + 1
    changed_ids %= _vocabulary(trainee)
    changed = replace(batch, input_ids=changed_ids)
    second = row.input_ids[first:], row.labels[first:]
    alone = collate([Row(row.row, row.example_ids[1:], row.lengths[1:], *second)])
    training = trainee.peft.training
    trainee.peft.eval()
    try:
        packed = _states(trainee, batch)[:, first:]
        leak = _difference(packed, _states(trainee, changed)[:, first:])
        parity = _difference(packed, _states(trainee, alone))
        # an explicit causal mask: with none, transformers sees documents in the position ids
        one = document_mask(torch.ones_like(batch.input_ids))
        bare, bare_changed = replace(batch, mask=one), replace(changed, mask=one)
        control = _difference(
            _states(trainee, bare)[:, first:], _states(trainee, bare_changed)[:, first:]
        )
    finally:
        trainee.peft.train(training)
    return Probe(leak, parity, control, TOLERANCE[trainee.precision])


def check_probe(probe: Probe) -> None:
    """Raise InputError when documents leak into each other or the probe cannot see a leak."""
    if probe.control <= probe.tolerance:
        raise InputError(
            Finding(
                "blind-probe",
                f"without a document mask the probe sees a difference of only {probe.control:.2e}",
                fix="set data.packing=false; please report the model",
            )
        )
    if probe.leak > probe.tolerance or probe.parity > probe.tolerance:
        raise InputError(
            Finding(
                "attention-leak",
                f"packed documents see each other: leak {probe.leak:.2e}, packed against alone "
                f"{probe.parity:.2e}, tolerance {probe.tolerance:.0e}",
                field="data.packing",
                fix="set data.packing=false, or use a base whose attention takes a document mask",
            )
        )


def _states(trainee: Trainee, batch: Batch) -> Tensor:
    with torch.no_grad(), trainee.autocast():
        return trainee.hidden(batch).float()


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())


def _vocabulary(trainee: Trainee) -> int:
    return int(trainee.peft.get_base_model().get_input_embeddings().weight.shape[0])
