"""Attention by document is at least twice as fast as a mask, and the same; else the exit code is 1.

    python bench/attention.py [--lengths 300 238 270 193] [--rounds 12] [--precision fp32 bf16]

One row of documents of these lengths, 9 query and 3 key heads of 64, forward and backward of the
attention alone, one thread, CPU milliseconds, medians of --rounds in which all take turns:

    mask       one call with the mask of training/batches.py: batch.attention=mask
    padded     one call over the documents padded to the longest
    documents  a call for each document (training/documents.py): batch.attention=documents

First all three must give the results and the gradients of the first within the tolerance of the
probe of documents (training/attention.py), relative to the largest element.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import torch
from rounds import Result, in_turn, median_of, processor
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from hashtune.training.attention import TOLERANCE
from hashtune.training.batches import document_mask
from hashtune.training.documents import attend
from hashtune.training.model import DTYPES

LIMIT = 2.0
HEADS, KEY_HEADS, WIDTH = 9, 3, 64
MASK = "mask"
LAYER = SimpleNamespace(num_key_value_groups=HEADS // KEY_HEADS, is_causal=True, training=True)
Attend = Callable[[Sequence[Tensor], Sequence[int]], Tensor]


def masked(tensors: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    """(1, T, heads, d) with the mask, which is built as a batch builds it."""
    numbers = torch.arange(1, len(lengths) + 1)
    mask = document_mask(torch.repeat_interleave(numbers, torch.tensor(lengths))[None])
    return attend(LAYER, *tensors, mask)[0]


def padded(tensors: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    """(1, T, heads, d) from a batch of documents."""
    query, key, value = (
        pad_sequence(tensor[0].transpose(0, 1).split(list(lengths)), batch_first=True)
        for tensor in tensors
    )
    result = scaled_dot_product_attention(
        *(tensor.transpose(1, 2) for tensor in (query, key, value)), is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    return torch.cat([one[:n] for one, n in zip(result, lengths, strict=True)])[None]


def by_document(tensors: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    """(1, T, heads, d), a call for each document."""
    return attend(LAYER, *tensors, None, documents=(tuple(lengths),))[0]


WAYS: Mapping[str, Attend] = {MASK: masked, "padded": padded, "documents": by_document}


def main() -> int:
    """Check that all agree, measure, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[300, 238, 270, 193])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"]
    )
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{processor()}, torch {torch.__version__}, documents of {wanted.lengths}")
    code = 0
    for precision in wanted.precision:
        tensors = heads(sum(wanted.lengths), DTYPES[precision])
        found = [
            f"{precision} {name}: differs from the mask by {gap:.2e} of the largest"
            for name, gap in gaps(tensors, wanted.lengths).items()
            if not gap <= TOLERANCE[precision]  # so that NaN is a fault
        ]
        runs = {name: partial(measured, way, tensors, wanted.lengths) for name, way in WAYS.items()}
        results = in_turn(runs, wanted.rounds, lambda text: None)
        ratio = show(precision, results)
        print(*found, sep="\n", end="\n" if found else "")
        code |= bool(found) or ratio < LIMIT
    return int(code)


def heads(length: int, dtype: torch.dtype) -> list[Tensor]:
    """Seeded query (1, 9, T, 64), key and value (1, 3, T, 64)."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, count, length, WIDTH, generator=generator).to(dtype).requires_grad_()
        for count in (HEADS, KEY_HEADS, KEY_HEADS)
    ]


def gaps(tensors: Sequence[Tensor], lengths: Sequence[int]) -> dict[str, float]:
    """By way, the largest difference of result and gradients from the mask's, over their largest
    element."""
    found = {name: both(way, tensors, lengths) for name, way in WAYS.items()}
    return {
        name: max(
            float((one - other).abs().max() / other.abs().max())
            for one, other in zip(made, found[MASK], strict=True)
        )
        for name, made in found.items()
    }


def both(way: Attend, tensors: Sequence[Tensor], lengths: Sequence[int]) -> list[Tensor]:
    """The result and the gradients of the sum of its squares, in fp32."""
    result = way(tensors, lengths)
    gradients = torch.autograd.grad(result.float().square().sum(), tensors)
    return [tensor.detach().float() for tensor in (result, *gradients)]


def measured(way: Attend, tensors: Sequence[Tensor], lengths: Sequence[int]) -> Result:
    """CPU milliseconds of forward and backward."""
    start = time.process_time()
    result = way(tensors, lengths)
    torch.autograd.grad(result, tensors, grad_outputs=torch.ones_like(result))
    return {"ms": 1000 * (time.process_time() - start)}


def show(precision: str, results: Mapping[str, Sequence[Result]]) -> float:
    """A line for each way; how many times as fast as the mask attention by document is."""
    medians = {name: median_of(runs, "ms") for name, runs in results.items()}
    for name, ms in medians.items():
        least, most = (pick(run["ms"] for run in results[name]) for pick in (min, max))
        print(
            f"{precision} {name:9} {ms:8.1f} ms ({least:.1f} to {most:.1f})  "
            f"{medians[MASK] / ms:5.2f} times as fast as the mask"
        )
    return medians[MASK] / medians["documents"]


if __name__ == "__main__":
    sys.exit(main())
