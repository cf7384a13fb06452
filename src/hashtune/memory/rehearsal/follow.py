"""A dispatch mode that follows every storage from birth to death.

Autograd, autocast and checkpointing run above it, so it sees what they keep. What one operation
takes and gives back inside itself it does not see, but for `opened` operations, whose Python code
is run in place of them, and for the workspaces that `assumed` names.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hashtune.memory.rehearsal.events import Birth, Events
from hashtune.memory.rehearsal.pretend import DEVICE, tensors_in
from hashtune.memory.rehearsal.where import Place, Places
from hashtune.training.phases import Phase

BUILDER = "hashtune/memory/rehearsal/"  # its files make what a real run loads
Kernel = Callable[..., Any]
Workspace = Callable[[tuple[Any, ...]], int]  # of an operation's arguments, in bytes


class Follow(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy here
    """Writes down the life of each storage that operations make while it is active.

    opened: operation -> Python code that computes it, run and followed in its place.
    assumed: operation -> bytes that it takes and gives back inside itself.
    """

    def __init__(
        self,
        *,
        opened: Mapping[Any, Kernel] | None = None,
        assumed: Mapping[Any, Workspace] | None = None,
    ) -> None:
        super().__init__()
        self.events = Events()
        self.places = Places()
        self.opened, self.assumed = opened or {}, assumed or {}
        self._alive: dict[int, tuple[int, Any]] = {}  # storage's address: its number, a reference

    def phase(self, phase: Phase) -> None:
        """What follows belongs to this phase."""
        self.events.mark(phase)

    def name(self, model: nn.Module) -> None:
        """Call modules by their names in this model, and its weights by their modules."""
        self.places.name(model)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            number, _ = self._alive.get(tensor.untyped_storage()._cdata, (0, None))
            if number:
                birth = self.events.births[number - 1]
                line = "loaded" if birth.line.startswith(BUILDER) else birth.line
                module = name.rpartition(".")[0]
                self.events.births[number - 1] = replace(birth, line=line, module=module)

    def adopt(self, tensors: Iterable[Tensor], line: str) -> None:
        """Count tensors that were there before, as made by `line`."""
        for tensor in tensors:
            self._follow(tensor, Place(line, ""))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, then write down what it made."""
        if func is DEVICE:
            return func(*args)
        place = self.places.here()
        kernel = self.opened.get(func)
        if kernel is not None:
            with self:
                return kernel(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        for made in (out,) if isinstance(out, Tensor) else tensors_in(_listed(out), {}):
            self._follow(made, place)
        workspace = self.assumed.get(func)
        if workspace is not None:
            self._passing(workspace(args), f"workspace of {func}", place)
        return out

    def _passing(self, size: int, what: str, place: Place) -> None:
        birth = Birth(size, (size,), "uint8", f"{place.line}, {what}", place.module)
        self.events.died(self.events.born(birth))

    def _follow(self, tensor: Tensor, place: Place) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        known = self._alive.get(key)
        if known is not None:
            if self.events.births[known[0] - 1].size == size:
                return
            self._gone(key, known[0])  # resized
        dtype = str(tensor.dtype).removeprefix("torch.")
        birth = Birth(size, tuple(tensor.shape), dtype, place.line, place.module)
        number = self.events.born(birth)
        reference = weakref.ref(storage, lambda _: self._gone(key, number))
        self._alive[key] = (number, reference)

    def _gone(self, key: int, number: int) -> None:
        if self._alive.get(key, (0, None))[0] == number:
            del self._alive[key]
            self.events.died(number)


def _listed(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, list | tuple) else ()
