"""The most bytes of tensors that were alive at once: on a CPU counted, on CUDA torch's own figure.

On a CPU torch keeps no such figure, and the resident memory of the process is more than tensors
(libraries, the allocator's free blocks). A dispatch mode sees each operation's outputs; a storage
counts until it dies. What an operation takes and gives back inside itself is not seen.
"""

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(Protocol):
    """A meter, active while it is entered. `peak`: the most bytes since the last `restart`, what
    was there before included; `reserved`: what the allocator held for them at most, if it says."""

    @property
    def peak(self) -> int:
        """Most bytes since the last restart."""
        ...

    @property
    def reserved(self) -> int | None:
        """Most bytes the allocator held, None where it does not say."""
        ...

    def restart(self) -> None:
        """Measure anew from what is alive now."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> Any: ...


def meter_of(device: torch.device, held: Iterable[Tensor]) -> LiveBytes:
    """The meter for a device. `held`: the tensors that are there before it begins."""
    return OnCuda() if device.type == "cuda" else OnCpu(held)


class OnCpu(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy here
    """Counts the storages of `held` and those that operations make."""

    reserved = None

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, tuple[int, Any]] = {}  # storage's address: bytes, a reference
        for tensor in held:
            self._follow(tensor)

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.now

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and count what it made."""
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._follow(leaf)
        return out

    def _follow(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            if self._alive[key][0] == size:
                return
            self._gone(key)  # resized
        self._alive[key] = (size, weakref.ref(storage, lambda _: self._gone(key)))
        self.now += size
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int) -> None:
        self.now -= self._alive.pop(key)[0]


class OnCuda(AbstractContextManager["OnCuda"]):
    """Torch's counters of the current GPU."""

    def __enter__(self) -> "OnCuda":
        self.restart()
        return self

    def __exit__(self, *error: object) -> None:
        """Let the run's own peak begin here, and give back what is cached for larger tensors."""
        torch.cuda.empty_cache()
        self.restart()

    def restart(self) -> None:
        """Forget the peak so far."""
        torch.cuda.reset_peak_memory_stats()

    @property
    def peak(self) -> int:
        """Bytes allocated at most."""
        return int(torch.cuda.max_memory_allocated())

    @property
    def reserved(self) -> int | None:
        """Bytes in the allocator's segments at most."""
        return int(torch.cuda.max_memory_reserved())
