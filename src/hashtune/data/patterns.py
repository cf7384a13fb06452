"""Personal data and unsafe content by pattern lists: what no training row may hold.

A list is a JSON-lines file in Git, pinned by sha256: {"name", "pattern", "check"?} per line, with
`pattern` a regular expression that is searched in the NFKC form of every text of a row, and
`check` a second test of what it finds (luhn, iban). What was found is never printed: findings,
ledger and report name the pattern and the field.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hashtune.data.json_texts import texts
from hashtune.data.sources import check_pin, resolve
from hashtune.errors import Finding, nearest
from hashtune.records import Conversation, Dropped
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
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                made = _pattern(line, file)
                if isinstance(made, Pattern):
                    patterns.append(made)
                else:
                    findings.append(Finding("pattern", made, file=file.uri, line=number))
    counted = Counter(pattern.name for pattern in patterns)
    findings += [
        Finding("name-taken", f"pattern {name} is there {times} times", field="cleaning.patterns")
        for name, times in counted.items()
        if times > 1
    ]
    return patterns, findings


def _pattern(line: str, file: PatternFile) -> Pattern | str:
    """A pattern, or what is wrong with the line."""
    try:
        row = json.loads(line)
        name, regex, check = row["name"], re.compile(row["pattern"]), row.get("check")
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        return f"no object with name and pattern ({type(error).__name__})"
    except re.error as error:
        return f"no regular expression: {error}"
    if set(row) - {"name", "pattern", "check"}:
        return "has other keys than name, pattern and check"
    if regex.search(""):
        return "matches the empty text, so every row"
    if check is not None and check not in CHECKS:
        return f"unknown check {check!r}; {nearest(str(check), CHECKS)}"
    return Pattern(f"{file.name}.{name}", regex, CHECKS.get(check), file.action)


@dataclass(slots=True)
class Searched:
    """Rows without a match, those dropped, findings, and rows per pattern that matched."""

    kept: list[Conversation] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def search(
    conversations: Iterable[Conversation], patterns: Sequence[Pattern], *, shown: str
) -> Searched:
    """Look for every pattern in every text of the rows of one file."""
    result = Searched()
    for row in conversations:
        hits = list(_hits(row.messages, patterns)) if patterns else []
        result.counts.update({pattern.name for pattern, _ in hits})
        errors = [(pattern, where) for pattern, where in hits if pattern.action == "error"]
        for pattern, where in errors:
            message = f"pattern {pattern.name} is found here"
            fix = "take it out of the row, or set the list's action to drop"
            result.findings.append(
                Finding("pattern-found", message, file=shown, line=row.line, field=where, fix=fix)
            )
        if hits and not errors:
            pattern, where = hits[0]
            detail = f"{pattern.name} in {where}"
            result.dropped.append(Dropped(row.id, row.source, row.line, "pattern", detail))
        else:
            result.kept.append(row)
    return result


def _hits(messages: list[Any], patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, str]]:
    for where, text in texts(messages, "messages"):
        form = unicodedata.normalize("NFKC", text)
        for pattern in patterns:
            if pattern.found_in(form):
                yield pattern, where
