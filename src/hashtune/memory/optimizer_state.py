"""Bytes of optimizer state for matrices of given shapes; a test counts the same in real optimizers.

adamw, adamw_fused,      two moments (Loshchilov and Hutter 2017, arXiv 1711.05101), 8 bytes a
paged_adamw_32bit        parameter in fp32; paging moves them, it makes them no smaller
adamw_8bit,              two one-byte codes and two fp32 scales a block of 256: 2.03 bytes
paged_adamw_8bit         (Dettmers et al. 2021, arXiv 2110.02861, with blocks of 2,048; block
                         and limit here are those of bitsandbytes 0.50, optim/optimizer.py)
adafactor                a row and a column in fp32 (Shazeer and Stern 2018, arXiv 1804.04235)
lion, muon, sgd          one momentum (Chen et al. 2023, arXiv 2302.06675; Liu et al. 2025,
                         arXiv 2502.16982); sgd without momentum keeps none

torch's own keep their state in the parameter's type (zeros_like in torch.optim 2.13): adamw,
adamw_fused, muon, sgd. bitsandbytes and transformers' adafactor keep fp32 and codes whatever it is.
"""

from collections.abc import Iterable

from hashtune.spec.schema import OptimizerName

FP32 = 4
MOMENTS: dict[OptimizerName, int] = {
    "adamw": 2,
    "adamw_fused": 2,
    "paged_adamw_32bit": 2,
    "lion": 1,
    "sgd": 1,
}
AS_PARAMETER = ("adamw", "adamw_fused", "sgd")  # muon too
BLOCK = 256
SMALLEST = 4096  # elements; smaller tensors keep fp32 moments
CODE_MAPS = 2 * 256 * FP32  # signed and unsigned, once for all parameters


def optimizer_bytes(
    name: OptimizerName,
    matrices: Iterable[tuple[int, int, int]],
    vectors: Iterable[tuple[int, int]] = (),
    *,
    element: int = FP32,
    momentum: bool = True,
) -> int:
    """State of the optimizer for matrices given as (rows, columns, how many) and vectors as
    (length, how many), of parameters with `element` bytes each. A vector has no rows and columns
    to factor, and is AdamW's beside Muon. `momentum`: whether sgd has any."""
    if name == "sgd" and not momentum:
        return 0
    vectors = list(vectors)
    lengths = sum(length * count for length, count in vectors)
    if name == "adafactor":
        factored = sum(count * (rows + columns) for rows, columns, count in matrices)
        return (factored + lengths) * FP32
    sizes = [(rows * columns, count) for rows, columns, count in matrices]
    if name == "muon":
        return (sum(size * count for size, count in sizes) + 2 * lengths) * element
    sizes += vectors
    if name in ("adamw_8bit", "paged_adamw_8bit"):
        coded = any(size >= SMALLEST for size, _ in sizes)
        return sum(count * _coded(size) for size, count in sizes) + coded * CODE_MAPS
    stored = element if name in AS_PARAMETER else FP32
    return sum(count * size for size, count in sizes) * MOMENTS[name] * stored


def _coded(size: int) -> int:
    """Two moments of a tensor: a byte an element and an fp32 scale a block, or plain fp32."""
    if size < SMALLEST:
        return 2 * size * FP32
    return 2 * (size + -(-size // BLOCK) * FP32)
