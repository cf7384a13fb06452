"""What a command prints on: a reader that goes away is no fault, a full disk is the user's to mend.

`hashtune inspect | head` closes the pipe, `hashtune inspect >&-` leaves no output at all, and a
terminal of another encoding gets numbers for what it cannot hold.
"""

import io
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.inspection.visible import visible

# on CPUs with bf16 it asks for an optional package, which the lock leaves out on purpose
NOISE = "bitsandbytes.backends.cpu.ops"
STDOUT, STDERR = 1, 2


def prepare() -> None:
    """Make standard output and error safe to print on. A stream that somebody has already replaced
    is theirs."""
    logging.getLogger(NOISE).setLevel(logging.ERROR)
    for name, descriptor in (("stdout", STDOUT), ("stderr", STDERR)):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  for good
        elif stream is getattr(sys, f"__{name}__"):
            encoding = stream.encoding
            lenient = io.BufferedWriter(_Lenient(descriptor, "w", closefd=False))
            wrapped = io.TextIOWrapper(
                lenient, encoding=encoding, errors="backslashreplace", line_buffering=True
            )
            setattr(sys, name, wrapped)


class _Lenient(io.FileIO):
    """A descriptor whose reader may go away: what is written after that goes nowhere, and so does
    what follows a first failure, which is told once."""

    failed = False

    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B"))
        if self.failed:
            return size
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failed = True
            if isinstance(error, BrokenPipeError) or self.fileno() == STDERR:
                return size  # nobody is left to tell
            message = f"standard output cannot be written: {error.strerror}"
            fix = "make room, or send it elsewhere"
            raise InputError(Finding("output", message, fix=fix)) from error


def colored(environment: Mapping[str, str], *, asked: bool) -> bool:
    """Whether to print colours: when asked, else on a terminal that wants them (no-color.org)."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return asked or (wanted and sys.stdout.isatty())


def harmless(text: str) -> str:
    """A model's answer for a terminal: its lines stay lines, what would be obeyed is shown."""
    return "\n".join(map(visible, text.split("\n")))
