"""Rules that join fields of optim, schedule and checkpoint, targets that cannot be right, and the
choices that need CUDA."""

from collections.abc import Iterator

from hashtune.errors import Finding
from hashtune.spec.activations import offload_findings
from hashtune.spec.device import device_findings
from hashtune.spec.lengths import hopeless
from hashtune.spec.methods import SOFT, method_findings
from hashtune.spec.precision import precision_findings
from hashtune.spec.schema import Optim, Schedule, Spec
from hashtune.spec.targets import entry_faults

FILE = "params.yaml"
# bitsandbytes 0.50 has no pages on a CPU: it warns and keeps the state where it is
CUDA_ONLY = {"paged_adamw_8bit": "adamw_8bit", "paged_adamw_32bit": "adamw"}


def training_findings(spec: Spec) -> list[Finding]:
    """All findings about how training is set, before anything is computed."""
    found = [*_warmup(spec.schedule), *_decay(spec.schedule), *_stable(spec)]
    if not found:  # else the schedule has no lengths, or two
        found += hopeless(spec.schedule, spec.checkpoint, most=spec.duration.max_steps)
    found += method_findings(spec)
    found += [
        *dora_over_int8(spec),
        *padding_free_mask(spec),
        *offload_findings(spec.activations, device=spec.hardware.device),
    ]
    found += device_findings(spec)
    found += entry_faults(spec.method.targets or []) + precision_findings(spec)
    if spec.hardware.device == "cpu":
        found += cuda_only(spec.optim)
    return found


def dora_over_int8(spec: Spec) -> list[Finding]:
    """PEFT 0.21 cannot unpack bitsandbytes' int8 weights on a CPU, and DoRA needs their norms."""
    if spec.method.variant != "dora" or spec.quantization.type != "int8":
        return []
    message = "DoRA needs the norms of the base's weights, which int8 does not give"
    fix = "quantization=nf4, or method.variant=lora"
    return [Finding("contradiction", message, file=FILE, field="method.variant", fix=fix)]


def padding_free_mask(spec: Spec) -> list[Finding]:
    """One sequence of all rows with a mask costs the square of their sum."""
    if spec.batch.layout != "padding_free" or spec.batch.attention == "documents":
        return []
    message = "padding_free puts all rows of a micro-batch into one sequence, and a mask pays for "
    message += "every pair of its tokens"
    alone = spec.method.type in SOFT  # which attention by document does not know
    fix = "batch.layout=rows" if alone else "batch.attention=documents, or batch.layout=rows"
    return [Finding("contradiction", message, file=FILE, field="batch.layout", fix=fix)]


def cuda_only(optim: Optim) -> list[Finding]:
    """The finding for an optimizer that a CPU cannot run as named; none for the others."""
    if optim.name not in CUDA_ONLY:
        return []
    message = f"{optim.name} pages its state between GPU and host, and this is a CPU"
    fix = f"optim={CUDA_ONLY[optim.name]} has the same formula without pages"
    return [Finding("cuda-only", message, file=FILE, field="optim.name", fix=fix)]


def _contradiction(field: str, message: str, fix: str) -> Finding:
    return Finding("contradiction", message, file=FILE, field=f"schedule.{field}", fix=fix)


def _warmup(schedule: Schedule) -> Iterator[Finding]:
    if (schedule.warmup_fraction is None) == (schedule.warmup_steps is None):
        yield _contradiction(
            "warmup_steps",
            "one of warmup_fraction and warmup_steps says how long the warm-up is",
            "set the other one to null",
        )


def _decay(schedule: Schedule) -> Iterator[Finding]:
    lengths = [schedule.decay_fraction, schedule.decay_start]
    if schedule.name != "wsd":
        if schedule.decay is not None or any(length is not None for length in lengths):
            yield _contradiction(
                "decay",
                f"schedule {schedule.name} has no decay of its own",
                "schedule=wsd, or decay, decay_fraction and decay_start null",
            )
        return
    if schedule.decay is None:
        yield _contradiction("decay", "wsd decays, and no shape is given", "linear, cosine, 1-sqrt")
    if lengths.count(None) != 1:
        yield _contradiction(
            "decay_start",
            "one of decay_fraction and decay_start says where the decay of wsd begins",
            "set the other one to null",
        )


def _stable(spec: Spec) -> Iterator[Finding]:
    """Only wsd and constant have a phase at one rate, whose state fits runs of any length."""
    if spec.schedule.name in ("wsd", "constant"):
        return
    fields = {
        "schedule.branch_from": spec.schedule.branch_from,
        "checkpoint.keep_stable": spec.checkpoint.keep_stable,
    }
    for field, value in fields.items():
        if value is not None:
            message = f"schedule {spec.schedule.name} has no stable phase"
            fix = "schedule=wsd or schedule=constant, or null"
            yield Finding("contradiction", message, file=FILE, field=field, fix=fix)
