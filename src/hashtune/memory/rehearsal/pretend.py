"""What fake tensors cannot say, said for them; to be entered inside a FakeTensorMode.

int and bool   tokens, labels, positions, masks are real tensors: what is made of them alone is
               computed, so that shapes that hang on data (trained positions) are the real ones
a number       of a fake tensor: 1.0, 1 or True, so a loss or norm is finite
a choice       by a real mask: so many rows as the mask has; by a fake one: all rows
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WHOLE = (torch.int64, torch.int32, torch.bool)
FACTORIES = {
    *(aten.zeros.default, aten.ones.default, aten.full.default, aten.empty.memory_format),
    *(aten.arange.default, aten.arange.start, aten.arange.start_step),
    *(aten.eye.default, aten.eye.m, aten.scalar_tensor.default),
}
UNTYPED = {aten.full.default: 1, aten.arange.default: 0, aten.arange.start: 0}
UNTYPED |= {aten.arange.start_step: 0, aten.scalar_tensor.default: 0}  # first number that decides
DEVICE = torch.ops.prim.device.default
PICKED = (aten.index.Tensor, aten._unsafe_index.Tensor)


class Pretend(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy here
    """Computes what is real, answers for what is fake; `guesses` names what it could not know."""

    def __init__(self) -> None:
        super().__init__()
        self.guesses: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation on real or on fake tensors."""
        if func is DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # asked more often than everything else together
        kwargs = kwargs or {}
        tensors = list(tensors_in(args, kwargs))
        fake = any(isinstance(tensor, FakeTensor) for tensor in tensors)
        if not fake and (tensors or _whole_numbers(func, args, kwargs)):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].is_floating_point() else 1)
        if func in PICKED:
            args = (args[0], [index for mask in args[1] for index in self._chosen(mask)])
        elif func is aten.nonzero.default:
            return self._all(args[0])
        elif func is aten.equal.default:
            return True
        return func(*args, **kwargs)

    def _chosen(self, index: Tensor | None) -> list[Tensor | None]:
        """Row numbers in place of a mask."""
        if index is None or index.dtype not in {torch.bool, torch.uint8}:
            return [index]
        if isinstance(index, FakeTensor):
            return list(self._all(index).unbind(1))
        with unset_fake_temporarily():
            return list(index.nonzero().unbind(1))

    def _all(self, mask: Tensor) -> Tensor:
        """As if the whole fake mask were true."""
        self.guesses.add("a choice by computed values takes every row")
        with unset_fake_temporarily():
            return torch.ones(tuple(mask.shape), dtype=torch.bool).nonzero()


def tensors_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors among an operation's arguments, in lists too."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, Tensor))


def _whole_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether it makes a tensor of whole numbers from nothing."""
    if func not in FACTORIES:
        return False
    dtype = kwargs.get("dtype")
    if dtype is None and func in UNTYPED:
        numbers = args[UNTYPED[func] :]
        return all(isinstance(number, int) for number in numbers)
    return dtype in WHOLE
