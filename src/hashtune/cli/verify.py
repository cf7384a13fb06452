"""hashtune verify REV: rebuild a revision from Git and data hashes alone, and compare every output.
With --resume: does a killed training go on to the same bits here?

Exit code 0 for identical bits, 1 for a difference or a stage that refused, 2 for bad input.
"""

import argparse
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.lineage.rebuild import commit_of
from hashtune.lineage.resume import verify_resume
from hashtune.lineage.verify import DIFFERS, IDENTICAL, verify
from hashtune.store.loader import home

STEPS = 100  # of --resume; killed after three fifths of them
REPORT = Path("reports/verify.json")


def run(arguments: argparse.Namespace) -> int:
    """Rebuild and compare; writes reports/verify.json and prints the verdict."""
    root = Path.cwd()
    commit = commit_of(root, arguments.revision)
    if arguments.resume:
        return _resume(root, commit, arguments)
    if arguments.kill is not None:
        fix = "add --resume, or leave --kill away"
        raise InputError(Finding("contradiction", "is for --resume", field="--kill", fix=fix))
    steps = _whole(arguments.steps, "--steps")
    print(f"verify: rebuilds {commit[:12]} with an empty cache and an empty store", flush=True)
    with _folder() as folder:
        report = verify(root, commit, folder, steps=steps, say=_say)
    writers.write_json(REPORT, report)
    print(f"\n{shown(report)}\nwritten to {REPORT}")
    return 0 if report["verdict"] == IDENTICAL else 1


def _resume(root: Path, commit: str, arguments: argparse.Namespace) -> int:
    steps = _whole(arguments.steps, "--steps") or STEPS
    kill = _whole(arguments.kill, "--kill") or max(1, steps * 3 // 5)
    if kill >= steps:
        message = f"nothing is left to resume: {steps} steps, killed after step {kill}"
        fix = "give --steps above --kill, at least 2"
        raise InputError(Finding("contradiction", message, field="--kill", fix=fix))
    print(f"verify: trains {commit[:12]} twice, once killed after step {kill}", flush=True)
    with _folder() as folder:
        found = verify_resume(
            *(root, commit, folder), store=home(), steps=steps, kill=kill, say=_say
        )
    print(f"\n  {found.steps} steps, killed after step {found.killed_at}, then {found.resumed}")
    same = found.difference is None and found.step is None
    if not same:
        print(f"  first difference: {found.difference}; first step that differs: {found.step}")
    print(f"verdict: {IDENTICAL if same else DIFFERS}")
    return 0 if same else 1


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder that SIGTERM and a closed terminal do not leave behind."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        with tempfile.TemporaryDirectory(prefix="hashtune-verify-") as name:
            yield Path(name)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _say(line: str) -> None:
    print(f"  | {line}", flush=True)


def _whole(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        fix = "give a whole number from 1"
        message = f"{text!r} is no number of steps"
        raise InputError(Finding("bad-number", message, field=option, fix=fix))
    return int(text)


def shown(report: Mapping[str, Any]) -> str:
    """The report in words: a line per stage, what ran, the verdict and the likely cause."""
    lines = [f"  {stage['stage']:<10} {_stage(stage)}" for stage in report["stages"]]
    training = report["training"]
    if training["began"]:
        lines.append(f"  training: {training['began']}, {training['steps']} of {training['of']}")
    lines.append(f"verdict: {report['verdict']}{_scope(report)}")
    if where := report["first_difference"]:
        words = [str(where[key]) for key in ("stage", "output", "difference") if where.get(key)]
        lines.append(f"  first difference: {': '.join(words)}")
        if where.get("step"):
            lines.append(f"  first step that differs: {where['step']}")
        lines.append(f"  likely cause: {report['cause']['kind']}: {report['cause']['words']}")
    return "\n".join(lines)


def _stage(stage: Mapping[str, Any]) -> str:
    return f"{stage['verdict']}{': ' if stage['outputs'] else ''}{', '.join(stage['outputs'])}"


def _scope(report: Mapping[str, Any]) -> str:
    """What the verdict does not speak of."""
    left = [s["stage"] for s in report["stages"] if s["verdict"] == "not run"]
    if report["verdict"] != IDENTICAL or not left:
        return ""
    steps = report["training"]["steps"]
    return f" up to step {steps} of training; nothing is said of {', '.join(left)}"
