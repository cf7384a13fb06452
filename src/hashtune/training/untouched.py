"""Steps that leave no trace: what they change is put back, and that it is the same is shown.

Trained weights go to an unnamed file beside the run's state: in full fine-tuning they are as large
as the base, and host memory may be what is scarce. Optimizers are the caller's, who throws his
away. A digest of each part before and after says what was not put back: that is a fault of ours.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from hashtune import writers
from hashtune.training.held import model_tensors, modules_of
from hashtune.training.model import Trainee
from hashtune.training.randomness import python_and_numpy_states, restore_rng, torch_states

PLAIN = (bool, int, float, str, type(None))  # what a module may count in or switch by
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextmanager
def untouched(trainee: Trainee, scratch: Path) -> Iterator[None]:
    """Put weights, buffers, switches of modules and random generators back at the end.

    Args:
        trainee: the model; it has no gradients.
        scratch: folder for the trained weights meanwhile; it is made.

    Raises:
        RuntimeError: something differs from what it was: a fault of hashtune.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    before = digests(trainee)
    with tempfile.TemporaryFile(dir=scratch) as file:
        _write(file, trainee.parameters.values())
        buffers = [(b, b.detach().clone()) for b in _buffers(trainee)]
        switches = [(module, _switches(module)) for module in modules_of(trainee)]
        drawn, generators = python_and_numpy_states(), torch_states()
        yield
        file.seek(0)
        _read(file, trainee.parameters.values())
    for buffer, kept in buffers:
        buffer.detach().copy_(kept)
    for module, values in switches:
        vars(module).update(values)
    restore_rng(drawn, generators)
    after = digests(trainee)
    differing = [name for name, digest in before.items() if after[name] != digest]
    if differing:
        raise RuntimeError(f"the memory probe changed the run: {', '.join(differing)}")


def digests(trainee: Trainee) -> dict[str, str]:
    """Part of a run's state to hex sha256; the frozen base counts by sums over its words, which
    show any one change and take no second copy."""
    trained = {p.untyped_storage()._cdata for p in trainee.parameters.values()}
    buffers = list(_buffers(trainee))
    trained |= {buffer.untyped_storage()._cdata for buffer in buffers}
    frozen = [t for t in model_tensors(trainee) if t.untyped_storage()._cdata not in trained]
    gradients = [p.grad is not None for p in trainee.parameters.values()]
    generators = writers.canonical_json(python_and_numpy_states(), indent=None).encode()
    return {
        "trained weights": _sha256(trainee.parameters.values()),
        "buffers": _sha256(buffers),
        "base": _text([(str(t.dtype), tuple(t.shape), _sum(t)) for t in frozen]),
        "gradients": _text(gradients),
        "modules": _text([sorted(_switches(m).items()) for m in modules_of(trainee)]),
        "torch's generators": _sha256(torch_states().values()),
        "Python's and NumPy's generators": hashlib.sha256(generators).hexdigest(),
    }


def _buffers(trainee: Trainee) -> Iterator[Tensor]:
    for module in modules_of(trainee):
        yield from (buffer for buffer in module._buffers.values() if buffer is not None)


def _switches(module: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, PLAIN)}


def _bytes(tensor: Tensor) -> memoryview:
    """Of one tensor on the host; a copy of it where it lies elsewhere."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu()
    return memoryview(flat.numpy())


def _sha256(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _sum(tensor: Tensor) -> int:
    """Modulo 2^64, of words of 8 bytes where they fit: ten times as fast as smaller ones."""
    flat, size = tensor.detach().reshape(-1), tensor.element_size()
    whole = not (flat.numel() * size % 8 or flat.storage_offset() * size % 8)
    return int(flat.view(torch.int64 if whole else WORDS[size]).sum(dtype=torch.int64))


def _text(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _write(file: IO[bytes], tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        file.write(_bytes(tensor))


def _read(file: IO[bytes], tensors: Iterable[Tensor]) -> None:
    """Put the bytes that `_write` wrote back into the same tensors."""
    for tensor in tensors:
        kept = torch.empty(tensor.shape, dtype=tensor.dtype)
        _bytes(kept)[:] = file.read(kept.nbytes)
        tensor.detach().copy_(kept)
