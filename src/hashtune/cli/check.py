"""hashtune check: the spec without running anything, and the gate's verdict for CI."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.lineage.lock import packed_rows, stale
from hashtune.spec.drift import check_drift, run_name
from hashtune.spec.length_hints import cut_hints, length_hints, length_of
from hashtune.spec.lengths import keep_findings, length_findings
from hashtune.spec.load import read_params
from hashtune.spec.origins import checked, located
from hashtune.spec.precision import rounding_warnings
from hashtune.spec.ranges import hints
from hashtune.spec.schema import Spec
from hashtune.training.backends import VARIABLE, unknown_trackers
from hashtune.training.branch_settings import declared_findings

GATE = Path("reports/gate.json")
LOCK = Path("dvc.lock")
PACKED = Path("reports/pack.json")


def run(arguments: argparse.Namespace) -> int:
    """Check the spec, or with --gate the verdict."""
    return check_gate() if arguments.gate else check_spec()


def check_spec() -> int:
    """Schema, drift from conf/ and pins, as the `spec` stage checks them; 0 or InputError.

    Hints about unusual settings and what bf16 parameters lose are printed and change no exit code.
    """
    root = Path.cwd()
    params = read_params()
    drift = check_drift(root, params)
    spec = _checked(params, root, drift.given)
    if drift.note:
        print(f"note: {drift.note}")
    for change in drift.overrides:
        print(f"override: {change}")
    for hint in [*hints(spec), *_length_hints(spec, params)]:
        print(f"hint: {hint}")
    for warning in rounding_warnings(spec.optim, micro_batches=spec.batch.grad_accum):
        print(f"warning: {warning}")
    print(f"valid: {run_name(spec.run.experiment, drift.overrides)}")
    return 0


def _length_hints(spec: Spec, params: dict[str, Any]) -> Iterator[str]:
    """As far as the length of the run is known: from what pack last said, or from max_steps."""
    rows, batch = _rows(params), spec.batch
    per_step = batch.micro * batch.grad_accum * batch.world_size
    if rows is not None:
        yield from cut_hints(spec.duration, rows=rows, rows_per_step=per_step)
    yield from length_hints(spec, length_of(spec.duration, rows=rows, rows_per_step=per_step))


def _planned(spec: Spec, params: dict[str, Any]) -> list[Finding]:
    """What does not fit into the steps of the run, where those are known: as train says it."""
    batch = spec.batch
    per_step = batch.micro * batch.grad_accum * batch.world_size
    length = length_of(spec.duration, rows=_rows(params), rows_per_step=per_step)
    if length is None or not length.exact:
        return []
    found = length_findings(spec.schedule, total=length.steps)
    return found + keep_findings(spec.schedule, spec.checkpoint, total=length.steps)


def _rows(params: dict[str, Any]) -> int | None:
    """None too for a damaged dvc.lock: it is no part of the spec, and DVC refuses it."""
    try:
        return packed_rows(LOCK.read_text(encoding="utf-8"), params, PACKED)
    except (FileNotFoundError, UnicodeDecodeError, InputError):
        return None


def _checked(params: dict[str, Any], root: Path, overrides: Sequence[str]) -> Spec:
    """The spec; its findings come with those about the environment and the state to branch from,
    which train would refuse only after DVC has removed the outputs of the last run."""
    findings = unknown_trackers(os.environ.get(VARIABLE, ""))
    try:
        spec = checked(params, root, overrides)
    except InputError as error:
        raise InputError([*error.findings, *findings], error.more) from error
    try:
        found = [*_planned(spec, params), *declared_findings(spec, root)]
        findings += located(found, root, overrides)
    except InputError as error:
        findings += error.findings
    if findings:
        raise InputError(findings)
    return spec


def check_gate() -> int:
    """0 when the verdict is pass, 1 otherwise; a verdict of another state is refused."""
    for file in (GATE, LOCK):
        if not file.is_file():
            raise InputError(Finding("no-verdict", "is missing", file=str(file), fix="dvc repro"))
    check_drift(Path.cwd(), read_params())
    findings = stale(LOCK.read_text(encoding="utf-8"), read_params(), GATE)
    if findings:
        raise InputError(findings)
    report = writers.read_json(GATE)
    for rule in report["rules"]:
        print(f"  {rule['verdict']:<20} {rule['name']}: {rule.get('meaning', '')}")
    print(f"verdict: {report['verdict']}")
    return 0 if report["verdict"] == "pass" else 1
