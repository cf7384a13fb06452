"""Runs of `dvc repro -s train` in one clone that are struck, started again and compared."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ENDS_WITHIN = 120  # seconds for a trainer that was asked to stop
# how many visits of a phase a kill may fall into: later ones may lie behind the end of a run
# that is nearly over
REACH = {"step": 2, "checkpoint write": 4, "evaluation": 1}


class Failed(Exception):
    """A promise that did not hold."""


def require(holds: bool, claim: str) -> None:
    """Failed unless it holds."""
    if not holds:
        raise Failed(claim)


@dataclass(frozen=True, slots=True)
class Kill:
    """What strikes where; `place`: the share of the phase's events before it, in [0, 1)."""

    phase: str
    signal: str
    target: str
    place: float


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of the project and its store."""

    path: Path
    home: Path

    def environment(self, order: Path | None = None) -> dict[str, str]:
        """Little of the caller's; with an order the shim stands for `python`."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        own = {"HASHTUNE_HOME": str(self.home), "DVC_NO_ANALYTICS": "1"}
        own |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if order is not None:
            paths.insert(0, str(order.parent / "bin"))
            own["KILL_ORDER"] = str(order)
        return {**kept, **own, "PATH": os.pathsep.join(paths)}

    def outputs(self) -> dict[str, str]:
        """Path to sha256 of all that train leaves: adapter, curves, samples, report."""
        files = [*(self.path / "build/train").rglob("*"), self.path / "reports/train.json"]
        return {
            str(file.relative_to(self.path)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
            if file.is_file()
        }

    def newest(self) -> int | None:
        """Step of the newest checkpoint."""
        names = [folder.name for folder in (self.home / "runs").glob("*/step-*")]
        return max((int(name.removeprefix("step-")) for name in names), default=None)

    def trainers(self) -> list[int]:
        """Processes that train in this clone."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
                if b"hashtune.stages.train" in command and (folder / "cwd").samefile(self.path):
                    found.append(int(folder.name))
            except OSError:  # it ended meanwhile
                continue
        return found


class Chain:
    """The runs of a clone in which every stage before train is built.

    Attributes:
        reference: outputs of the uninterrupted run.
        counts: phase to the profiler's events in each visit of an uninterrupted run.
        struck: the kills that hit, and the seconds from a start to its end.
        missed: the kills whose phase did not come any more.
        finished: runs that were compared.
    """

    def __init__(self, clone: Clone) -> None:
        self.clone = clone
        self.reference: dict[str, str] = {}
        self.counts: dict[str, list[int]] = {}
        self.struck: list[tuple[Kill, float]] = []
        self.missed: list[Kill] = []
        self.finished = 0
        self.lock = (clone.path / "dvc.lock").read_text()
        self.folder = clone.path.parent
        (self.folder / "bin").mkdir(exist_ok=True)
        shim = self.folder / "bin/python"
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} {BENCH}/kill_shim.py "$@"\n')
        shim.chmod(0o755)

    def measure(self, *, plain: bool) -> None:
        """The uninterrupted run, and one under the shim that counts events; with `plain` false
        the second stands for both."""
        for order in ([None] if plain else []) + [{"phase": None}]:
            self._fresh()
            notes, output, code = self._start(order)
            require(code == 0, f"an uninterrupted run ends:\n{output}")
            self.reference = self.reference or self.clone.outputs()
            self._compare()
        self.counts = notes["counts"]
        self._fresh()  # copies of this clone begin so

    def run(self, kills: list[Kill]) -> None:
        """One run from step 1 through these kills to its end."""
        self._fresh()
        code = -1
        for kill in kills:
            began = time.monotonic()
            notes, output, code = self._start(self._order(kill))
            if notes is None:
                self.missed.append(kill)
            else:
                self.struck.append((kill, time.monotonic() - began))
            print(_line(kill, output, code, hit=notes is not None), flush=True)
            if code == 0:
                self._end()
        if code != 0:
            _, output, code = self._start(None)
            require(code == 0, f"the run ends:\n{output}")
            self._end()

    def _fresh(self) -> None:
        """Train is to run from step 1: DVC must find neither its output, nor a cached result, nor a
        line in dvc.lock whose files the cache holds."""
        (self.clone.path / "dvc.lock").write_text(self.lock)
        for folder in (".dvc/cache/runs", "build/train/adapter"):
            shutil.rmtree(self.clone.path / folder, ignore_errors=True)

    def _end(self) -> None:
        self._compare()
        self.finished += 1
        self._fresh()

    def _compare(self) -> None:
        found = self.clone.outputs()
        names = sorted(found.keys() | self.reference.keys())
        other = [name for name in names if found.get(name) != self.reference.get(name)]
        require(not other, f"the bytes of the uninterrupted run in {other}")

    def _order(self, kill: Kill) -> dict[str, Any]:
        events = sum(self.counts[kill.phase][: REACH.get(kill.phase)])
        return {**asdict(kill), "event": 1 + int(kill.place * events)}

    def _start(self, order: dict[str, Any] | None) -> tuple[Any, str, int]:
        """Run dvc to its end and the trainer's: the shim's notes, the output, dvc's code."""
        newest = self.clone.newest()
        path, notes, log = (self.folder / name for name in ("order.json", "notes.json", "log"))
        notes.unlink(missing_ok=True)
        if order is not None:
            path.write_text(json.dumps({**order, "notes": str(notes)}))
        with log.open("w") as sink:  # no pipe: its end would be another way to stop
            code = subprocess.Popen(
                ["dvc", "repro", "-s", "train"],
                cwd=self.clone.path,
                env=self.clone.environment(path if order else None),
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).wait()
        end = time.monotonic() + ENDS_WITHIN
        while (left := self.clone.trainers()) and time.monotonic() < end:
            time.sleep(0.05)
        require(not left, f"no trainer lives on: {left}")
        output = log.read_text()
        begin = "starting at step 1" if newest is None else f"resuming after step {newest} "
        require(begin in output, f"{begin!r} in:\n{output}")
        return json.loads(notes.read_text()) if notes.exists() else None, output, code


def _line(kill: Kill, output: str, code: int, *, hit: bool) -> str:
    begin = re.search(r"resuming after step \d+|starting at step 1", output)
    blow = f"{kill.signal} {kill.target:<5} {kill.phase:<27}"
    return f"  {blow} {'hit   ' if hit else 'MISSED'} {begin and begin[0]}, dvc exit {code}"
