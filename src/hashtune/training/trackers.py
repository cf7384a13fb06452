"""Experiment trackers beside dvclive, for people who watch: TensorBoard, W&B, MLflow, Trackio.

Chosen by HASHTUNE_TRACKERS=tensorboard,mlflow in the environment, never in the spec: they change
no bit of an output and rerun nothing. Each gets every point of the curves once, also when the run
is killed and resumed: `trackers.json` in the run's folder counts the points that each was given.
W&B (0.31) and Trackio (0.43) write from a buffer, each second and each half: a kill can lose what
they were given since. What is sent: the values of the curves with their steps, a run name made of
the train identity, and that identity; W&B adds Python's version and the platform. Where the
tracker's own settings name no server, it writes to local files.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.training.backends import (
    KINDS,
    VARIABLE,
    Session,
    Tracker,
    named,
    unknown_trackers,
)
from hashtune.training.randomness import python_and_numpy_states, restore_rng, torch_states

STATE = "trackers.json"
SHOWN = 200  # characters of a tracker's error
Result = TypeVar("Result")


def chosen(value: str, *, folder: Path) -> dict[str, Any]:
    """The trackers that the variable names, and their imported modules.

    Args:
        value: names with commas between them.
        folder: for what a tracker writes on this machine.

    Raises:
        InputError: names that are unknown, packages that cannot be imported.
    """
    modules: dict[str, Any] = {}
    findings = []
    for name in named(value):
        if (kind := KINDS.get(name)) is None:
            findings += unknown_trackers(name)
            continue
        for variable, default in kind.environment(folder).items():
            os.environ.setdefault(variable, default)
        try:
            modules[name] = import_module(kind.module)
        except ImportError as error:
            message = f"{VARIABLE} names {name!r}, which cannot be imported: {error}"
            fix = f"pip install -c requirements.lock -e '.[{name}]', or unset {VARIABLE}"
            findings.append(Finding("no-tracker", message, fix=fix))
    if findings:
        raise InputError(findings)
    return modules


class Trackers:
    """The trackers of a run. A failing one is switched off with one line; none stops training."""

    def __init__(
        self, modules: Mapping[str, Any], *, run: Path, folder: Path, say: Callable[[str], None]
    ) -> None:
        """Nothing is opened yet.

        Args:
            modules: what `chosen` gave.
            run: the run's folder, named by the train identity.
            folder: for what a tracker writes on this machine.
            say: gets a line when they start, and one for each failure.
        """
        self._modules = modules
        self._state = run / STATE
        self._folder = folder
        self._say = say
        self._open: dict[str, Tracker] = {}
        self._given: dict[str, int] = {}
        self._name = ""

    def start(self) -> None:
        """Open them, with the name of the interrupted run if there was one."""
        if not self._modules:
            return
        identity = self._state.parent.name
        state: dict[str, Any] = {"run": f"{identity[:16]}-{secrets.token_hex(3)}", "points": {}}
        if self._state.is_file():
            state = writers.read_json(self._state)
        self._name, self._given = state["run"], state["points"]
        self._save()
        self._say(f"  trackers {', '.join(self._modules)}: run {self._name}")
        session = Session(self._name, identity, self._folder)
        for name, module in self._modules.items():
            tracker = self._guarded(name, partial(KINDS[name].open, module, session))
            if tracker is not None:
                self._open[name] = tracker

    def log(self, number: int, point: Mapping[str, Any]) -> None:
        """Give point `number` (from 1) of the run to each tracker that was not given it before."""
        values = {name: float(value) for name, value in point.items() if name != "step"}
        for name, tracker in list(self._open.items()):
            if number > self._given.get(name, 0):
                self._guarded(name, partial(tracker.log, values, point["step"], number))
                if name in self._open:
                    self._given[name] = number
                    self._save()

    def end(self) -> None:
        """Close them; the next training is another run."""
        for name, tracker in list(self._open.items()):
            self._guarded(name, tracker.end)
        self._state.unlink(missing_ok=True)

    def _save(self) -> None:
        writers.write_json(self._state, {"run": self._name, "points": self._given})

    def _guarded(self, name: str, work: Callable[[], Result]) -> Result | None:
        """Do what may fail in any way, since it is not our code: servers, disks, versions.

        The random generators are put back: a package that draws a name from Python's would
        change what training draws next.
        """
        states, tensors = python_and_numpy_states(), torch_states()
        try:
            return work()
        except Exception as error:  # noqa: BLE001  the boundary to packages that are not ours
            self._open.pop(name, None)
            text = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
            self._say(f"  tracker {name} failed and is off: {text}")
            return None
        finally:
            restore_rng(states, tensors)
