"""Room on the disk: enough before a state is written, and a clear error when it ends in between."""

import errno
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from hashtune.errors import Finding, InputError

FULL = (errno.ENOSPC, errno.EDQUOT)
# safetensors has no errno: "I/O error: No space left on device (os error 28)"
FULL_WORDS = tuple(f"(os error {number})" for number in FULL)


def check_space(run: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError unless the disk of `run` has room for twice these tensors."""
    need = 2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    run.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(run).free
    if free < need:
        message = f"a checkpoint needs about {need / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
        raise InputError(_finding(run, message))


@contextmanager
def full_disk(run: Path) -> Iterator[None]:
    """Turn a disk, or a quota, that is full into an InputError; other errors pass.

    What was free before a write need not be free in its middle: other processes write too.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise InputError(_finding(run, _message(error.filename, error))) from error
    except SafetensorError as error:
        if not any(words in str(error) for words in FULL_WORDS):
            raise
        raise InputError(_finding(run, _message(None, error))) from error


def _message(file: str | None, error: Exception) -> str:
    return f"the disk is full{f', at {file}' if file else ''}: {error}"


def _finding(run: Path, message: str) -> Finding:
    fix = "free some space, or set HASHTUNE_HOME to another disk; the last good checkpoint is "
    fix += "untouched, and `dvc repro` continues from it"
    return Finding("disk-full", message, file=str(run), fix=fix)
