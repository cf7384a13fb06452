"""hashtune plan: the memory plan of this checkout, or of any base on any machine."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.cli.plan_question import ask, question
from hashtune.cli.streams import colored
from hashtune.errors import Finding, InputError
from hashtune.lineage.lock import stale_plan
from hashtune.memory import tables
from hashtune.memory.chart import ASCII, BLOCKS
from hashtune.memory.cost import Measured, measured_run
from hashtune.spec.hardware import peak_of
from hashtune.spec.load import read_params, read_spec

REPORT = Path("reports/plan.json")
MACHINE = Path("reports/machine/train.json")
LOCK = Path("dvc.lock")
ALONE = ("method", "seq", "micro", "hardware", "tokens", "gpus", "sharding", "shard_size")


def run(arguments: argparse.Namespace) -> int:
    """Explain the plan of this checkout, or answer for a base. A refused question changes nothing;
    a plan that does not fit is an answer, so the exit code is 0."""
    if arguments.model is None:
        _refuse_alone(arguments)
        return _this_checkout(as_json=arguments.json)
    asked = question(arguments, Path.cwd())
    report = ask(asked)
    if arguments.json:
        print(writers.canonical_json(report))
        return 0
    size = f" ({asked.base.nominal})" if asked.base.nominal else ""
    count = f"{report['model']['parameters']:,} parameters"
    print(f"{asked.base.name}{size}: {count}, {asked.base.source}")
    print(f"settings: {' '.join(asked.overrides)}; {asked.assumed}")
    print(tables.answer(report))
    _tell(report, f"on {report['hardware']}, {'fits' if report['fits'] else 'does not fit'}:")
    return 0


def _refuse_alone(arguments: argparse.Namespace) -> None:
    given = [
        f"--{name.replace('_', '-')}" for name in ALONE if getattr(arguments, name) is not None
    ]
    given += arguments.overrides
    if given:
        message = f"{', '.join(given)}: without --model it is the plan of this checkout"
        fix = "add --model NAME, or change the spec with `hashtune compose` and `dvc repro plan`"
        raise InputError(Finding("usage", message, field="hashtune plan", fix=fix))


def _this_checkout(*, as_json: bool) -> int:
    report = _read_report()
    stale = _stale()
    measured = _measured()
    if as_json:
        print(
            writers.canonical_json(
                report | {"stale": stale, "measured": _corrected(report, measured)}
            )
        )
        return 0
    for line in stale:
        print(f"stale: {line}")
    fits = "fits on" if report["fits"] else "does not fit on"
    _tell(report, f"{fits} {report['hardware']}")
    if measured is not None:
        print(_measured_line(report, measured))
    return 0


def _read_report() -> dict[str, Any]:
    fix = "dvc repro plan"
    if not REPORT.is_file():
        message = "there is no plan: the stage plan has not run, or the run does not fit"
        raise InputError(Finding("no-plan", message, file=str(REPORT), fix=fix))
    report: dict[str, Any] = writers.read_json(REPORT)
    if "cards" not in report:
        message = "was made by an earlier version of plan"
        raise InputError(Finding("stale-plan", message, file=str(REPORT), fix=fix))
    return report


def _stale() -> list[str]:
    """Why the report is not the plan of params.yaml, in words; empty when it is."""
    if not LOCK.is_file():
        return ["there is no dvc.lock, so whether the plan is current is not known"]
    return [
        str(finding)
        for finding in stale_plan(LOCK.read_text(encoding="utf-8"), read_params(), REPORT)
    ]


def _measured() -> Measured | None:
    spec = read_spec("hardware", "precision")
    peak = peak_of(spec.hardware.peak_tflops, spec.precision)
    if peak is None or not MACHINE.is_file():
        return None
    return measured_run(writers.read_json(MACHINE), peak_tflops=peak)


def _corrected(report: Mapping[str, Any], measured: Measured | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    hours = measured.hours(report["flops"])
    price = report["cost"] / report["hours"] if report["hours"] else 0.0
    return {
        "device": measured.device,
        "utilisation": measured.utilisation,
        "hours": hours,
        "cost": hours * price,
    }


def _measured_line(report: Mapping[str, Any], measured: Measured) -> str:
    found = _corrected(report, measured)
    assert found is not None
    return (
        f"measured: the run on record ({found['device']}) used {found['utilisation']:.0%} of the "
        f"peak; at that rate {found['hours']:.3g} h, {found['cost']:.2f} {report['currency']}"
    )


def _tell(report: Mapping[str, Any], title: str) -> None:
    """Bars, facts, changes and machines; colours and block characters on a terminal only."""
    color = colored(os.environ, asked=False)
    marks = BLOCKS if color and _can_show(BLOCKS) else ASCII
    print(title)
    for line in tables.bars(report, marks=marks, color=color):
        print(f"  {line}")
    shown = tables.facts(report)
    width = max(map(len, shown))
    for key, value in shown.items():
        print(f"  {key:<{width}}  {value}")
    _part("changes, in the order to try them:", tables.changes(report))
    _part("machines of conf/hardware:", tables.machines(report))


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _part(title: str, lines: list[str]) -> None:
    if lines:
        print(title)
    for line in lines:
        print(f"  {line}")
