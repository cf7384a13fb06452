"""hashtune verify REV: rebuild a revision from Git and data hashes alone, and compare every output.

Exit code 0 for identical bits, 1 for a difference or a stage that refused, 2 for bad input.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.lineage.rebuild import commit_of
from hashtune.lineage.verify import IDENTICAL, verify

REPORT = Path("reports/verify.json")


def run(arguments: argparse.Namespace) -> int:
    """Rebuild and compare; writes reports/verify.json and prints the verdict."""
    steps = _whole(arguments.steps, "--steps")
    root = Path.cwd()
    commit = commit_of(root, arguments.revision)
    print(f"verify: rebuilds {commit[:12]} with an empty cache and an empty store", flush=True)
    with tempfile.TemporaryDirectory(prefix="hashtune-verify-") as folder:
        report = verify(root, commit, Path(folder), steps=steps, say=_say)
    writers.write_json(REPORT, report)
    print(f"\n{shown(report)}\nwritten to {REPORT}")
    return 0 if report["verdict"] == IDENTICAL else 1


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
