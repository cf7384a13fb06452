"""A process that ends with the one that started it (Linux): an orphan would work on unseen."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies; it holds across exec.

    A stage's parent is DVC: as an orphan it would go on, and the next `dvc repro` would start a
    second one beside it. train catches the signal and checkpoints.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request was in place
            os.kill(os.getpid(), signal.SIGTERM)
