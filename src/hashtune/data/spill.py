"""Texts on disk instead of in memory, found again by the place they were put at.

The file has no name, so nothing is left behind however the process ends; it lies beside the
outputs, since a temporary folder may be memory.
"""

import os
import tempfile
from pathlib import Path
from types import TracebackType

SIZE_BYTES = 8
BUFFER_BYTES = 1 << 20
READ_BYTES = 4096  # most texts come with one read


class Spill:
    """An unnamed file in `folder`; close it, or use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=BUFFER_BYTES)  # noqa: SIM115  as long as we live
        self._end = 0

    def put(self, text: str) -> int:
        """Write a text; where it lies."""
        data = text.encode()
        place = self._end
        self._file.write(len(data).to_bytes(SIZE_BYTES, "little"))
        self._file.write(data)
        self._end += SIZE_BYTES + len(data)
        return place

    def get(self, place: int) -> str:
        """The text that was put there."""
        self._file.flush()
        start = os.pread(self._file.fileno(), READ_BYTES, place)
        end = SIZE_BYTES + int.from_bytes(start[:SIZE_BYTES], "little")
        while len(start) < end:
            start += os.pread(self._file.fileno(), end - len(start), place + len(start))
        return start[SIZE_BYTES:end].decode()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()

    def __enter__(self) -> "Spill":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
