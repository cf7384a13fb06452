"""Frozen inputs of evaluation: JSON-lines files that the spec pins by content.

The content is checked against its pin before anything is read from it, and every broken line is
found in one run.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hashtune.data.located import check_pin, resolve
from hashtune.data.readers import read_jsonl
from hashtune.errors import Finding, InputError

Line = tuple[int, dict[str, Any]]


def read_frozen(uri: str, *, sha256: str | None, root: Path, field: str) -> list[Line]:
    """(1-based line number, object) of each line of a pinned file below `root`.

    `field` is the part of the spec that declares the file, for the findings.

    Raises:
        InputError: no such file, no pin, other content than pinned, no lines, and everything that
            data.readers refuses.
    """
    path = resolve(uri, root, field=f"{field}.uri")
    if isinstance(path, Finding):
        raise InputError(path)
    wrong = check_pin(path, sha256=sha256, field=f"{field}.sha256", shown=uri)
    if wrong:
        raise InputError(wrong)
    reading = read_jsonl(path, shown=uri)
    if not reading.rows and not reading.findings:
        reading.findings.append(Finding("no-rows", "0 rows", file=uri, field=field))
    if reading.findings:
        raise InputError(reading.findings)
    return reading.rows


def repeated_ids(lines: Iterable[Line], *, file: str, seen: dict[str, str]) -> list[Finding]:
    """A finding for each id that is no text, blank or used before; `seen` maps an id to where it
    was first used and grows."""
    findings = []
    for number, item in lines:
        identifier = item.get("id")
        if not isinstance(identifier, str) or not identifier.strip():
            message = "is no text or blank"
        elif identifier in seen:
            message = f"{identifier!r} was used at {seen[identifier]}"
        else:
            seen[identifier] = f"{file}:{number}"
            continue
        findings.append(Finding("id", message, file=file, line=number, field="id"))
    return findings
