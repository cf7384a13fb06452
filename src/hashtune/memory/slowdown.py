"""How much longer a token takes after a change, as far as that can be reckoned.

    FLOPs              all matrix products, those computed again included, at the assumed share of
                       the peak of the precision (training/utilisation.py has the counts)
    dequantisation     NF4 weights are read, and written unpacked, for every product of a
                       micro-batch: forward, backward, and again where a block is recomputed. Bytes
                       over the memory's bandwidth, whatever the number of tokens (Dettmers et al.
                       2023, arXiv 2305.14314, section 3: storage in 4 bits, products in 16)

Not reckoned: int8 products, transfers to host memory, kernels, the optimizer's step, and that
smaller products use less of the peak. Where one of these decides, the answer is: not known.
"""

from dataclasses import dataclass

from hashtune.memory.closed_form import NF4_BITS, Workload
from hashtune.memory.cost import TERA, token_flops
from hashtune.spec.hardware import peak_of
from hashtune.spec.schema import Hardware, Precision

GIGA = 1e9
PASSES = 2  # forward, and backward for the gradient of the inputs


@dataclass(frozen=True, slots=True)
class Slowdown:
    """`factor` times as long for a token as before, None where not known; `source` says from what,
    or why not."""

    factor: float | None
    source: str


def compare(
    before: Workload, after: Workload, *, hardware: Hardware, precision: Precision, context: float
) -> Slowdown:
    """What the change from one workload to the other costs, by FLOPs and dequantisation.

    `precision` is the one of `before` (TF32 is stored as fp32); a change to another stored type
    takes that one's peak. `context`: see `flops_per_token`.
    """
    if "int8" in (before.quantization, after.quantization):
        return Slowdown(None, "int8 products are not reckoned")
    changed = before.precision != after.precision
    first = seconds_per_token(before, hardware=hardware, precision=precision, context=context)
    second = seconds_per_token(
        after,
        hardware=hardware,
        precision=after.precision if changed else precision,
        context=min(context, float(after.longest_row)),
    )
    if first is None or second is None:
        return Slowdown(None, f"conf/hardware has no bandwidth or peak of {hardware.name} for it")
    words = ["FLOPs"]
    if "nf4" in (before.quantization, after.quantization):
        words.append("dequantisation")
    if changed:
        words.append("peak")
    return Slowdown(second / first, ", ".join(words))


def seconds_per_token(
    work: Workload, *, hardware: Hardware, precision: Precision, context: float
) -> float | None:
    """Seconds for a token; None where the hardware's figures do not say."""
    peak = peak_of(hardware.peak_tflops, precision)
    if peak is None:
        return None
    compute = token_flops(work, context=context) / (peak * TERA * hardware.expected_utilisation)
    if work.quantization != "nf4":
        return compute
    if hardware.bandwidth_gbs is None:
        return None
    return compute + unpacked_bytes(work) / (hardware.bandwidth_gbs * GIGA) / work.tokens


def unpacked_bytes(work: Workload) -> float:
    """Bytes of NF4 weights read packed and written unpacked in the products of a micro-batch."""
    passes = PASSES + work.recomputed_blocks / work.shape.layers
    each = NF4_BITS[work.double_quant] / 8 + work.element
    return work.shape.linear_weights * each * passes
