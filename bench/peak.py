"""Bytes alive at once, counted storage by storage: neither load nor the allocator matters."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Peak(TorchDispatchMode):
    """Follows the storages that operations make: bytes alive `now`, and the most at once."""

    def __init__(self, ignored: list[torch.Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.ignored = [tensor.untyped_storage() for tensor in ignored]  # held, so ids stay theirs
        self.followed = {id(storage) for storage in self.ignored}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then count what it made."""
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.follow(tensor.untyped_storage())
        self.peak = max(self.peak, self.now)
        return out

    def follow(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it dies."""
        key, size = id(storage), storage.nbytes()
        if key not in self.followed:
            self.followed.add(key)
            self.now += size
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        """It died."""
        self.followed.remove(key)
        self.now -= size
