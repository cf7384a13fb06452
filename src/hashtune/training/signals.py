"""Stop requests: finish the step, checkpoint, exit 75. The death of DVC is one too (frame.py)."""

import contextlib
import os
import signal
from types import FrameType


class StopRequest:
    """Set by SIGTERM or SIGINT; the loop looks at it after each step."""

    def __init__(self) -> None:
        self.signal: str | None = None

    def install(self) -> None:
        """Catch SIGTERM and SIGINT instead of ending at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        _tell(f"\n  {self.signal}: finishing this step, then a checkpoint\n")

    def __bool__(self) -> bool:
        return self.signal is not None


def _tell(text: str) -> None:
    """Write to standard output without Python's buffer, which a handler may find half-way.

    Its reader may have gone with DVC; frame.outlive_reader sees to all later lines.
    """
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode())
