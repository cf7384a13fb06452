"""Requests by signal: SIGTERM, SIGINT and SIGHUP finish the step, checkpoint and exit 75; SIGUSR1
checkpoints after the step and goes on. The death of DVC is a stop request too (frame.py)."""

import contextlib
import os
import signal
from types import FrameType


class StopRequest:
    """Set by SIGTERM, SIGINT or SIGHUP; the loop looks at it after each step. `checkpoint` is set
    by SIGUSR1 until the loop has written one."""

    def __init__(self) -> None:
        self.signal: str | None = None
        self.checkpoint = False

    def install(self) -> None:
        """Catch SIGTERM, SIGINT, SIGHUP (the terminal has closed) and SIGUSR1 instead of ending at
        once. What `nohup` ignores stays ignored."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)
        signal.signal(signal.SIGUSR1, self._note_checkpoint)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        _tell(f"\n  {self.signal}: finishing this step, then a checkpoint\n")

    def _note_checkpoint(self, _number: int, _frame: FrameType | None) -> None:
        self.checkpoint = True
        _tell("\n  SIGUSR1: a checkpoint after this step\n")

    def __bool__(self) -> bool:
        return self.signal is not None


def _tell(text: str) -> None:
    """Write to standard output without Python's buffer, which a handler may find half-way.

    Its reader may have gone with DVC; frame.outlive_reader sees to all later lines.
    """
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode())
