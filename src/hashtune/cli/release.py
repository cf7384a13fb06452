"""hashtune release [VERSION]: register this commit's adapter with GTO, if nothing speaks against.

Only a passed, clean, pushed commit is registered. Nothing is tagged while there is a finding.
"""

import argparse
from pathlib import Path

from hashtune.cli.check import check_gate
from hashtune.errors import Finding, InputError
from hashtune.lineage.registration import (
    REPORT,
    Wanted,
    artifact_findings,
    data_findings,
    git_findings,
    register,
    wanted_findings,
)
from hashtune.writers import read_json


def run(arguments: argparse.Namespace) -> int:
    """Check everything, then tag and push; `--dry-run` stops before the tag."""
    root = Path.cwd()
    wanted = Wanted(arguments.version, arguments.bump, arguments.stage)
    findings = [*wanted_findings(wanted), *_verdict(), *artifact_findings(root)]
    findings += [*git_findings(root), *data_findings(root)]
    if findings:
        raise InputError(findings)
    name = str(read_json(root / REPORT)["name"])
    if arguments.dry_run:
        print(f"{name} at HEAD may be registered; nothing was tagged")
        return 0
    for line in register(root, name, wanted, push=True):
        print(line)
    return 0


def _verdict() -> list[Finding]:
    """The gate's verdict, current and pass."""
    try:
        if check_gate() == 0:
            return []
    except InputError as error:
        return error.findings
    fix = "train until the gate passes"
    return [Finding("rejected", "is no pass", file="reports/gate.json", fix=fix)]
