"""Runs real stages in a checkout, each in a process of its own that need not import them anew.

usage: PYTHONPATH=src python -P server.py (in the checkout); a stage's name per line on stdin.
Answers with its exit code; its words go to stderr. Importing transformers costs more than a stage.
"""

import importlib
import os
import signal
import sys

from transformers import AutoTokenizer  # noqa: F401  the stage loads it when it runs

from hashtune import frame

STAGES = ("prepare", "tokenize")
SECONDS = 60


def fork(stage: str) -> int:
    """Run the stage as `python -m hashtune.stages.<stage>` does; its exit code, < 0 if killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of its own time; ends it
        os.dup2(2, 1)
        frame.main(stage, importlib.import_module(f"hashtune.stages.{stage}").run)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in STAGES:
        importlib.import_module(f"hashtune.stages.{name}")
    for line in sys.stdin:
        print(fork(line.strip()), flush=True)
