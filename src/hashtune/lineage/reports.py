"""A stage's report as every reader takes it: a JSON object, or the finding that names the file.

Review and page read the same files and refuse the same ones.
"""

import json
from collections.abc import Mapping
from typing import Any

from hashtune.errors import Finding, InputError

RULE_KEYS = frozenset({"name", "verdict", "meaning"})


def parse_report(data: bytes, *, file: str, where: str = "") -> dict[str, Any]:
    """The object in a report.

    Args:
        data: the file as it is.
        file: its name for the finding.
        where: of which revision, as the start of a sentence ("in the head: "), or "".

    Raises:
        InputError: broken-report; no JSON object in UTF-8, or a gate whose rules are none.
    """
    try:
        report = json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _broken(file, f"{where}{error}") from error
    if not isinstance(report, dict):
        raise _broken(file, f"{where}is no JSON object")
    if file.endswith("/gate.json") and not _has_rules(report):
        raise _broken(file, f"{where}its rules are no rules of a gate")
    return report


def _has_rules(gate: Mapping[str, Any]) -> bool:
    """Whether its rules, if there are any, are rules."""
    rules = gate.get("rules", [])
    return isinstance(rules, list) and all(
        isinstance(rule, dict) and rule.keys() >= RULE_KEYS for rule in rules
    )


def _broken(file: str, reason: str) -> InputError:
    fix = f"`git checkout {file}`, or `dvc repro`, and commit it"
    return InputError(Finding("broken-report", reason, file=file, fix=fix))
