"""Which line made a tensor: the innermost frame that is neither torch's nor this room's.

In the backward no such frame is on the stack but the one that called it. There the line is that of
the forward operation whose backward runs, told by the sequence number that autograd gives a node
when the operation makes it.
"""

import os
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

LIBRARIES = f"{os.sep}site-packages{os.sep}"
OWN = f"{os.sep}hashtune{os.sep}"
STDLIB = f"{Path(os.__file__).parent}{os.sep}"
SKIPPED = ("torch/", "hashtune/memory/rehearsal/follow.py", "hashtune/memory/rehearsal/pretend.py")
BACKWARD = "_engine_run_backward"
CALL = "_call_impl"


@dataclass(frozen=True, slots=True)
class Place:
    """A line ("package/file.py:12 function") and the module at work there, "" outside of any."""

    line: str
    module: str


NOWHERE = Place("", "")


@lru_cache(maxsize=4096)
def shown(path: str) -> str | None:
    """A file as it is called on any machine: from the package on; None for what is skipped."""
    if LIBRARIES in path:
        name = path.rpartition(LIBRARIES)[2].replace(os.sep, "/")
    elif OWN in path:
        name = "hashtune/" + path.rpartition(OWN)[2].replace(os.sep, "/")
    elif path.startswith((STDLIB, "<")):
        return None
    else:
        name = Path(path).name
    return None if name.startswith(SKIPPED) else name


@dataclass(slots=True)
class Places:
    """Finds places; `names` are those of the modules by id."""

    names: dict[int, str] = field(default_factory=dict)
    _nodes: dict[int, Place] = field(default_factory=dict)

    def name(self, root: nn.Module) -> None:
        """Take the names of the modules below this one."""
        for name, module in root.named_modules():
            self.names[id(module)] = name

    def here(self) -> Place:
        """The place of the operation that runs now."""
        node = torch._C._current_autograd_node()
        line, module = self._stack(sys._getframe(2))
        if node is not None:
            of_node = self._nodes.get(node._sequence_nr(), NOWHERE)
            if not line and of_node.line:
                line = f"backward of {of_node.line}"
            module = module or of_node.module
        place = Place(line, module)
        if torch.is_grad_enabled() and line:
            # the first operation after a node was made is the one that made it
            self._nodes.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
        return place

    def _stack(self, frame: FrameType | None) -> tuple[str, str]:
        line = module = ""
        while frame is not None:
            code = frame.f_code
            if code.co_name == BACKWARD:
                break
            if not line and (name := shown(code.co_filename)) is not None:
                line = f"{name}:{frame.f_lineno} {code.co_name}"
            if code.co_name == CALL:
                called: Any = frame.f_locals.get("self")
                module = self.names.get(id(called), type(called).__name__)
                break
            frame = frame.f_back
        # a module of torch itself: the line is its caller's
        while frame is not None and not line and frame.f_code.co_name != BACKWARD:
            if (name := shown(frame.f_code.co_filename)) is not None:
                line = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
            frame = frame.f_back
        return line, module
