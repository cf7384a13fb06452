"""The rehearsal of a run: from the spec's sections and a base's config to what it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hashtune.memory.rehearsal.assume import assume
from hashtune.memory.rehearsal.build import fake_base
from hashtune.memory.rehearsal.live import Stage, Work, follow, train_phases
from hashtune.memory.rehearsal.table import Rehearsal
from hashtune.records import Row
from hashtune.spec.methods import FULL
from hashtune.spec.precision import stored_type
from hashtune.spec.schema import (
    Activations,
    Batch,
    Device,
    Kernels,
    Method,
    Optim,
    Precision,
    Quantization,
)
from hashtune.training.activations import set_checkpointing
from hashtune.training.documents import attend_as
from hashtune.training.fused.attach import attach
from hashtune.training.model import DTYPES, Trainee, build_trainee, quantization_config

BITSANDBYTES = ("adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion")


@dataclass(frozen=True, slots=True)
class Settings:
    """The sections of the spec that decide what a step holds, and the base's config.json. `tokens`:
    ids of added tokens; `device`: where the run trains."""

    config: Mapping[str, Any]
    method: Method
    quantization: Quantization
    optim: Optim
    batch: Batch
    activations: Activations
    precision: Precision
    kernels: Kernels
    device: Device
    seed: int = 0
    tokens: tuple[int, ...] = ()


def rehearse(settings: Settings, rows: Sequence[Row], eval_rows: Sequence[Row] = ()) -> Rehearsal:
    """Two steps on these rows, an evaluation on the others, on fake tensors.

    Raises:
        InputError: what building the model or a step raises for these settings.
    """

    # they make tables when they are imported, which is not part of a step
    import bitsandbytes as _kernels  # noqa: F401
    import peft as _adapters  # noqa: F401

    def step(stage: Stage) -> None:
        trainee = trainee_of(settings, [*rows, *eval_rows])
        stage.name(trainee.peft.get_base_model())
        work = Work(rows, eval_rows, settings.optim, settings.batch, settings.seed)
        train_phases(trainee, work, stage)

    quantised = settings.quantization.type != "none" or settings.optim.name in BITSANDBYTES
    assumed = assume(settings.device, quantised=quantised)
    if settings.activations.offload:
        note = "inputs of recomputed blocks stay on the device; offloading them needs less"
        assumed = replace(assumed, notes=(*assumed.notes, note))
    if settings.quantization.type == "int8" and settings.device == "cuda":
        note = "int8 products as on a CPU: the weight is unpacked, states are not rounded"
        assumed = replace(assumed, notes=(*assumed.notes, note))
    return follow(step, assumed=assumed)


def trainee_of(settings: Settings, rows: Sequence[Row]) -> Trainee:
    """What training/start.py makes of the same sections, on fake tensors."""
    full = settings.method.type == FULL
    stored = "fp32" if full else stored_type(settings.precision)

    def load() -> Any:
        return fake_base(
            settings.config,
            dtype=DTYPES[stored],
            quantization_config=quantization_config(settings.quantization, settings.precision),
            rows=max(settings.tokens, default=-1) + 1,
        )

    base = load()
    # attention of our own is for a CPU, and fake tensors say that they are on one
    kernels = settings.kernels if settings.device == "cpu" else "plain"
    attend_as(base, settings.batch.attention, rows, kernels)
    trainee = build_trainee(
        *(base, settings.method),
        precision=settings.precision,
        seed=settings.seed,
        tokens=settings.tokens,
        master_weights=settings.optim.master_weights,
        again=load,
    )
    if settings.kernels == "fused":
        fused = attach(trainee.peft, precision=settings.precision)
        trainee = replace(trainee, fused=fused)
    # offloaded inputs of blocks are counted as if they stayed
    set_checkpointing(trainee, settings.activations.model_copy(update={"offload": False}))
    return trainee
