"""In which types a run trains: what `precision` and `optim.master_weights` mean, and what they rule
out.

    precision   base and products
    fp32        fp32, exact products
    tf32        fp32; on CUDA products round their factors to TF32 (10 bits behind the point)
    bf16, fp16  that type, products by autocast
"""

from collections.abc import Iterator
from typing import Literal

from hashtune.errors import Finding
from hashtune.spec.methods import FULL
from hashtune.spec.schema import Optim, Precision, Spec

FILE = "params.yaml"
Stored = Literal["fp32", "bf16", "fp16"]
# bf16 keeps 8 significant bits: numbers in [1, 2) lie 2^-7 apart, so what is added must be more
# than half of that, and relative to a number just below 2 half of it is 2^-9
LOST_BELOW = 2.0**-9
LOST = "2^-9 (0.2 %)"
FULL_SUM = 256  # parts of a sum of equal ones: a further one may be half a last digit of the sum
# an update is about as large as the learning rate; SGD's is as large as its gradient says
LR_SIZED = frozenset(
    {
        *("adamw", "adamw_fused", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"),
        *("adafactor", "lion", "muon"),
    }
)
BF16_MOMENTS = frozenset({"adamw", "adamw_fused"})  # bitsandbytes keeps fp32 or codes, muon none


def stored_type(precision: Precision) -> Stored:
    """The type that base and products are kept in; TF32 is a way to multiply fp32."""
    return "fp32" if precision == "tf32" else precision


def trained_type(precision: Precision, *, master_weights: bool) -> Stored:
    """The type of the trainable parameters."""
    return "fp32" if master_weights else stored_type(precision)


def precision_findings(spec: Spec) -> list[Finding]:
    """All findings about types, before anything is computed."""
    on_cpu = spec.hardware.device == "cpu"
    found = tf32_on_cpu(spec.precision) if on_cpu else []
    if spec.method.type == FULL:  # methods.py refuses the same field for another reason
        return found
    return found + without_master(spec.precision, spec.optim)


def tf32_on_cpu(precision: Precision) -> list[Finding]:
    """The finding for TF32 where no unit computes it."""
    if precision != "tf32":
        return []
    message = "TF32 is how CUDA's tensor cores multiply fp32 numbers, and this is a CPU"
    return [
        Finding("cuda-only", message, file=FILE, field="precision", fix="precision=fp32"),
    ]


def without_master(precision: Precision, optim: Optim) -> list[Finding]:
    """The finding for parameters without an fp32 copy in a precision that needs one or has none."""
    if optim.master_weights or precision == "bf16":
        return []
    if precision == "fp16":
        message = "the loss scale of fp16 needs fp32 parameters: GradScaler unscales no fp16 ones"
    else:
        message = f"parameters of {precision} are fp32 and their own master weights"
    fix = "optim.master_weights=true, or precision=bf16"
    return [Finding("contradiction", message, file=FILE, field="optim.master_weights", fix=fix)]


def rounding_warnings(optim: Optim, *, micro_batches: int) -> Iterator[str]:
    """What is lost without master weights, with the numbers of this optimizer and of a step's
    micro-batches (batch.grad_accum), whose gradients autograd adds in the parameter's type."""
    if optim.master_weights:
        return
    lost = (
        f"optim.master_weights false: an update smaller than {LOST} of its weight is lost, "
        "since bf16 keeps 8 significant bits"
    )
    if optim.name in LR_SIZED:
        stuck = optim.lr / LOST_BELOW
        lost += (
            f"; one as large as optim.lr {optim.lr:g} moves no weight beyond {stuck:.3g} in size"
        )
    yield lost
    if optim.name in BF16_MOMENTS and 1.0 - optim.beta2 < LOST_BELOW:
        yield (
            f"optim.beta2 {optim.beta2:g} without master weights: the second moment is bf16 too, "
            f"keeps its value to {LOST} in a step, and so never falls; beta2 of at most 0.99, "
            "optim=adamw_8bit or optim=adafactor let it"
        )
    if micro_batches > 1:
        lost = (
            f"batch.grad_accum {micro_batches} without master weights: the gradients of a step's "
            f"micro-batches are added in bf16, where a part smaller than {LOST} of the sum is lost"
        )
        if micro_batches > FULL_SUM:
            lost += f"; a sum of equal ones stops at {FULL_SUM} to {2 * FULL_SUM} of them"
        yield f"{lost}. A larger batch.micro with a smaller batch.grad_accum adds fewer"
