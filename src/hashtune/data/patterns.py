"""Personal data and unsafe content by pattern lists: what no training row may hold.

A list is a JSON-lines file in Git, pinned by sha256: {"name", "pattern", "check"?} per line, with
`pattern` a regular expression that is searched in the NFKC form of every text, key and number of a
row (pattern_search.py), and `check` a second test of what it finds (luhn, iban).
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hashtune.data.lines import Log
from hashtune.data.located import check_pin, resolve
from hashtune.data.readers import rows_of_jsonl
from hashtune.errors import Finding, nearest
from hashtune.spec.schema import PatternFile


def luhn(found: str) -> bool:
    """The check digit of payment cards."""
    digits = [int(character) for character in reversed(found) if character.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def iban(found: str) -> bool:
    """The check digits of an account number; words that follow the number do not matter."""
    parts = found.split()
    return any(_iban("".join(parts[:count])) for count in range(1, len(parts) + 1))


def _iban(account: str) -> bool:
    if not (15 <= len(account) <= 34 and account.isascii() and account.isalnum()):
        return False
    return int("".join(str(int(c, 36)) for c in account[4:] + account[:4])) % 97 == 1


CHECKS: dict[str, Callable[[str], bool]] = {"luhn": luhn, "iban": iban}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern under its full name, "<list>.<pattern>", and its list's action."""

    name: str
    regex: re.Pattern[str]
    check: Callable[[str], bool] | None
    action: Literal["drop", "error"]

    def found_in(self, text: str) -> bool:
        """True when a match passes the check."""
        matches = (match.group() for match in self.regex.finditer(text))
        return any(self.check is None or self.check(match) for match in matches)


def load_patterns(files: Sequence[PatternFile], root: Path) -> tuple[list[Pattern], list[Finding]]:
    """The patterns of all lists, or findings for what is missing, not pinned or not valid."""
    patterns: list[Pattern] = []
    findings: list[Finding] = []
    for index, file in enumerate(files):
        name = f"cleaning.patterns[{index}]"
        path = resolve(file.uri, root, field=f"{name}.uri")
        if isinstance(path, Finding):
            findings.append(path)
            continue
        fault = check_pin(path, sha256=file.sha256, field=f"{name}.sha256", shown=file.uri)
        if fault:
            findings.append(fault)
            continue
        log, before = Log(file.uri), len(patterns)
        for line, row, _ in rows_of_jsonl(path, log):
            made = _pattern(row, file)
            if isinstance(made, Pattern):
                patterns.append(made)
            else:
                log.findings.append(Finding("pattern", made, file=file.uri, line=line))
        if len(patterns) == before and not log.findings:
            said = "holds no pattern, so nothing would be found"
            log.findings.append(Finding("pattern", said, file=file.uri, field=name))
        broken = [replace(finding, rule="pattern") for finding in log.findings]
        findings += sorted(broken, key=lambda finding: finding.line or 0)
    counted = Counter(pattern.name for pattern in patterns)
    findings += [
        Finding("name-taken", f"pattern {name} is there {times} times", field="cleaning.patterns")
        for name, times in counted.items()
        if times > 1
    ]
    return patterns, findings


def _pattern(row: dict[str, Any], file: PatternFile) -> Pattern | str:
    """A pattern, or what is wrong with the row."""
    name, written, check = row.get("name"), row.get("pattern"), row.get("check")
    if not isinstance(name, str) or not name.strip() or not isinstance(written, str):
        return "no object with name and pattern, two texts"
    if others := sorted(row.keys() - {"name", "pattern", "check"}):
        return f"has {', '.join(map(repr, others))} beside name, pattern and check"
    regex = _compiled(written)
    if isinstance(regex, str):
        return regex
    if check is not None and not (isinstance(check, str) and check in CHECKS):
        return f"unknown check {check!r}; {nearest(str(check), CHECKS)}"
    test = None if check is None else CHECKS[check]
    return Pattern(f"{file.name}.{name}", regex, test, file.action)


def _compiled(written: str) -> re.Pattern[str] | str:
    try:
        with warnings.catch_warnings():  # "[[" may mean something else in a later Python
            warnings.simplefilter("ignore")
            regex = re.compile(written)
    except (re.error, OverflowError) as error:
        return f"no regular expression: {error}"
    except RecursionError:
        return "no regular expression: nested too deep"
    return "matches the empty text, so every row" if regex.search("") else regex
