"""Proof on the real model and backend, before training: documents of a row do not see each other.

Two probes on two documents A, B, laid out as training lays them out. Leak: with other tokens in A,
B's hidden states stay put. Parity: B behind A and B alone have the same states, and positions. A
negative control, the same tokens as one document, must fire, or the probe itself is broken. What
was probed is named as the layers have it, which may be another backend than the one asked for.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.spec.schema import Layout
from hashtune.training.batches import Batch, collate
from hashtune.training.guard import UNTOUCHED
from hashtune.training.layouts import batch_of
from hashtune.training.model import Trainee
from hashtune.training.own_values import INT8_STATES, in_int8

# Relative to the largest state: a masked key adds exact zeros, a kernel may sum in another order.
# fp16 has three bits more than bf16: an eighth of its tolerance. TF32 has as many bits as fp16.
TOLERANCE = {"fp32": 1e-4, "tf32": 4e-3, "bf16": 3e-2, "fp16": 4e-3}
PROBE_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Probe:
    """Largest relative differences; `control` is the leak of A and B as one document. `backend`:
    of attention, as attention_backend names it."""

    leak: float
    parity: float
    control: float
    tolerance: float
    backend: str


def attention_backend(trainee: Trainee) -> str:
    """The attention function of transformers that the model's layers call: "sdpa", "eager",
    documents.FUSED; several, where they differ, with commas between them."""
    configs = [getattr(m, "config", None) for m in trainee.peft.get_base_model().model.modules()]
    names = {getattr(config, "_attn_implementation", None) for config in configs}
    return ", ".join(sorted(filter(None, names)))


def probe_row(rows: Sequence[Row], layout: Layout = "rows") -> Row | None:
    """A row of two short documents from real tokens, or None where no two are ever in one
    sequence. Without padding the documents of two rows are."""
    packed = next((row for row in rows if len(row.lengths) > 1), None)
    if packed is not None:
        a, b = islice(_documents(packed), 2)
    elif layout == "padding_free" and len(rows) > 1:
        a, b = (next(_documents(row)) for row in rows[:2])
    else:
        return None
    labels = [IGNORE_INDEX] * (len(a.input_ids) + len(b.input_ids))
    names, lengths = [*a.example_ids, *b.example_ids], [*a.lengths, *b.lengths]
    return Row(a.row, names, lengths, [*a.input_ids, *b.input_ids], labels)


def run_probe(trainee: Trainee, row: Row, layout: Layout = "rows") -> Probe:
    """Measure leak, parity and control; weights, RNG and mode are left as they were."""
    a, b = _documents(row)
    batch = batch_of([a, b], layout) if layout == "padding_free" else batch_of([row], layout)
    alone = collate([b])
    merged = collate([replace(row, lengths=[sum(row.lengths)])])
    first = a.lengths[0]
    behind = batch.position_ids[:, first:]
    assert torch.equal(behind, alone.position_ids), "positions do not begin at 0 in each document"
    training = trainee.peft.training
    trainee.peft.eval()
    try:
        packed = _states(trainee, batch)[:, first:]
        leak = _difference(packed, _states(trainee, _other_a(trainee, batch, first))[:, first:])
        parity = _difference(packed, _states(trainee, alone))
        one = _states(trainee, merged)[:, first:]
        control = _difference(one, _states(trainee, _other_a(trainee, merged, first))[:, first:])
    finally:
        trainee.peft.train(training)
    tolerance = TOLERANCE[trainee.precision]
    if in_int8(trainee):
        tolerance = max(tolerance, INT8_STATES)
    return Probe(leak, parity, control, tolerance, attention_backend(trainee))


def _documents(row: Row) -> Iterator[Row]:
    """Each document, cut short, as a row of its own without labels."""
    start = 0
    for name, length in zip(row.example_ids, row.lengths, strict=True):
        ids = row.input_ids[start : start + min(length, PROBE_TOKENS)]
        yield Row(row.row, [name], [len(ids)], ids, [IGNORE_INDEX] * len(ids))
        start += length


def _other_a(trainee: Trainee, batch: Batch, first: int) -> Batch:
    """The batch with other tokens in its first document."""
    ids = batch.input_ids.clone()
    ids[0, :first] = (ids[0, :first].flip(0) + 1) % _vocabulary(trainee)
    return replace(batch, input_ids=ids)


def check_probe(probe: Probe) -> None:
    """Raise InputError when documents leak into each other or the probe cannot see a leak."""
    if not all(map(math.isfinite, (probe.leak, probe.parity, probe.control))):
        message = "the states of the first packed documents hold NaN or infinity: whether they see "
        message += "each other cannot be told"
        raise InputError(Finding("non-finite", message, field="base_model", fix=UNTOUCHED))
    if probe.control <= probe.tolerance:
        raise InputError(
            Finding(
                "blind-probe",
                f"of two documents as one the probe sees a difference of only {probe.control:.2e} "
                f"with attention backend '{probe.backend}'",
                fix="set data.packing=false; please report the model",
            )
        )
    if probe.leak > probe.tolerance or probe.parity > probe.tolerance:
        raise InputError(
            Finding(
                "attention-leak",
                f"attention backend '{probe.backend}' leaks, packed documents see each other: leak "
                f"{probe.leak:.2e}, packed against alone {probe.parity:.2e}, tolerance "
                f"{probe.tolerance:.0e}",
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
