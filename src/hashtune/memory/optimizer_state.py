"""Bytes of optimizer state for matrices of given shapes; a test counts the same in real optimizers.

adamw, adamw_fused,      two fp32 moments, 8 bytes a parameter (Loshchilov and Hutter 2017,
paged_adamw_32bit        arXiv 1711.05101); paging moves them, it makes them no smaller
adamw_8bit,              two one-byte codes and two fp32 scales a block of 256: 2.03 bytes
paged_adamw_8bit         (Dettmers et al. 2021, arXiv 2110.02861, with blocks of 2,048; block
                         and limit here are those of bitsandbytes 0.50, optim/optimizer.py)
adafactor                a row and a column in fp32 (Shazeer and Stern 2018, arXiv 1804.04235)
lion, muon, sgd          one fp32 momentum (Chen et al. 2023, arXiv 2302.06675; Liu et al.
                         2025, arXiv 2502.16982); sgd without momentum keeps none
"""

from collections.abc import Iterable

from hashtune.spec.schema import OptimizerName

FP32 = 4
BYTES_PER_PARAMETER: dict[OptimizerName, int] = {
    "adamw": 2 * FP32,
    "adamw_fused": 2 * FP32,
    "paged_adamw_32bit": 2 * FP32,
    "lion": FP32,
    "sgd": FP32,
}
BLOCK = 256
SMALLEST = 4096  # elements; smaller tensors keep fp32 moments
CODE_MAPS = 2 * 256 * FP32  # signed and unsigned, once for all parameters


def optimizer_bytes(
    name: OptimizerName,
    matrices: Iterable[tuple[int, int, int]],
    vectors: Iterable[tuple[int, int]] = (),
) -> int:
    """State of the optimizer for matrices given as (rows, columns, how many) and vectors as
    (length, how many). A vector has no rows and columns to factor, and is AdamW's beside Muon."""
    vectors = list(vectors)
    lengths = sum(length * count for length, count in vectors)
    if name == "adafactor":
        factored = sum(count * (rows + columns) for rows, columns, count in matrices)
        return (factored + lengths) * FP32
    sizes = [(rows * columns, count) for rows, columns, count in matrices]
    if name == "muon":
        return (sum(size * count for size, count in sizes) + 2 * lengths) * FP32
    sizes += vectors
    if name in ("adamw_8bit", "paged_adamw_8bit"):
        coded = any(size >= SMALLEST for size, _ in sizes)
        return sum(count * _coded(size) for size, count in sizes) + coded * CODE_MAPS
    return sum(count * size for size, count in sizes) * BYTES_PER_PARAMETER[name]


def _coded(size: int) -> int:
    """Two moments of a tensor: a byte an element and an fp32 scale a block, or plain fp32."""
    if size < SMALLEST:
        return 2 * size * FP32
    return 2 * (size + -(-size // BLOCK) * FP32)
