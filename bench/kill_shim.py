"""Runs a stage as `python -m` does and strikes once, where the order says (bench/kill_anywhere.py).

Stands for `python` in PATH, so that dvc.yaml and src/ stay as they are. It wraps functions of train
by name and counts the profiler's events inside a phase (each call and return, Python's and C's; in
a phase that writes those of the file system alone, since most of the others encode JSON); at the
chosen event it sends the signal. Without an order it notes how many events each phase has.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

ORDER = "KILL_ORDER"  # environment: path of a JSON file
STAGE = "hashtune.stages.train"
WRITES = ("checkpoint write", "adapter write", "end of the run")
CALLS = frozenset(
    {"open", "write", "flush", "fsync", "close", "chmod", "mkdir", "rmdir", "unlink", "replace"}
    | {"serialize_file", "scandir", "sendfile", "copy_file_range", "__exit__"}
)


class Striker:
    """Counts the events of the phases of a run; strikes at one of them.

    order: {"notes": file, "phase": name or null, "event": n, "signal": name, "target": name}.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.phase: str | None = None
        self.left = order.get("event", 0)
        self.counts: dict[str, list[int]] = {}

    def enter(self, phase: str) -> None:
        """The phase begins; nothing while another one lasts."""
        if self.phase is not None:
            return
        self.phase = phase
        self.counts.setdefault(phase, []).append(0)
        if self.order["phase"] in (None, phase):
            sys.setprofile(self._event)

    def leave(self, phase: str) -> None:
        """The phase is over."""
        if self.phase == phase:
            sys.setprofile(None)
            self.phase = None

    def note(self) -> None:
        """Write the counts of a run that nobody struck."""
        Path(self.order["notes"]).write_text(json.dumps({"counts": self.counts}))

    def _event(self, _frame: FrameType, event: str, argument: object) -> None:
        assert self.phase is not None
        if self.phase in WRITES and not (
            event in ("c_call", "c_return") and getattr(argument, "__name__", "") in CALLS
        ):
            return
        self.counts[self.phase][-1] += 1
        if self.order["phase"] is not None:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                self._strike()

    def _strike(self) -> None:
        Path(self.order["notes"]).write_text(json.dumps({"hit": self.phase}))
        number, parent = signal.Signals[self.order["signal"]], os.getppid()
        match self.order["target"]:
            case "stage":
                os.kill(os.getpid(), number)
            case "group":
                os.killpg(os.getpgrp(), number)
            case "dvc":
                os.kill(parent, number)
                end = time.monotonic() + 10  # its death reaches us as a signal, in this phase
                while os.getppid() == parent and time.monotonic() < end:
                    time.sleep(0.01)


def install(striker: Striker) -> None:
    """Wrap what marks a phase; imports train, which nobody wants to kill."""
    from hashtune.stages import train
    from hashtune.training import checkpoint as checkpoints
    from hashtune.training import runs
    from hashtune.training.loop import Loop

    def within(owner: Any, name: str, phase: str) -> None:
        real = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            striker.enter(phase)
            try:
                return real(*arguments, **options)
            finally:
                striker.leave(phase)

        setattr(owner, name, wrapped)

    within(checkpoints, "save", "checkpoint write")
    within(checkpoints, "prune", "checkpoint write")
    within(Loop, "_evaluate", "evaluation")
    within(train, "write_adapter", "adapter write")
    within(runs, "finish", "end of the run")
    _mark_steps(Loop, checkpoints, striker)


def _mark_steps(loop: Any, checkpoints: Any, striker: Striker) -> None:
    step, save = loop._step, checkpoints.save  # private: a step is what the loop calls one

    def marked_step(self: Any, *arguments: Any) -> Any:
        first = not checkpoints.steps(self.settings.run)
        phase = "before the first checkpoint" if first else "step"
        striker.enter(phase)
        try:
            return step(self, *arguments)
        finally:
            striker.leave(phase)
            if self.progress.step == len(self.plan.steps):
                striker.enter("last step to rename")

    def marked_save(*arguments: Any, **options: Any) -> Any:
        try:
            return save(*arguments, **options)
        finally:
            striker.leave("last step to rename")

    loop._step, checkpoints.save = marked_step, marked_save


def main(arguments: list[str]) -> None:
    """`python -m MODULE`; train is struck where the order says."""
    assert arguments[0] == "-m", "dvc.yaml runs modules"
    module = arguments[1]
    sys.path[0] = str(Path.cwd())
    sys.argv = [module, *arguments[2:]]
    if module != STAGE or ORDER not in os.environ:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    from hashtune import frame
    from hashtune.stages import train

    striker = Striker(json.loads(Path(os.environ[ORDER]).read_text()))
    install(striker)
    try:
        frame.main("train", train.run)  # the last line of the module
    finally:
        striker.leave(striker.phase or "")
        if striker.order["phase"] is None:
            striker.note()


if __name__ == "__main__":
    main(sys.argv[1:])
