"""Errors are part of the product: every bad input becomes findings, printed all at once.

Exit codes: 2 bad input, 75 stopped and resumable, 70 a fault of our own (see frame.py).
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

EXIT_INPUT = 2
EXIT_FAULT = 70
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130
SHOWN_IN_FULL = 20
KEPT = 1000  # findings of one kind of check that are held in memory


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule and where it is broken.

    Args:
        rule: short name of the rule, for counting ("duplicate-key", "not-utf8").
        message: what is wrong, in a sentence.
        file: path as the user wrote it, or None.
        line: 1-based line in that file, or None.
        field: dotted path of the field ("messages[1].content", "optim.lr"), or None.
        fix: what to do about it, or None.
    """

    rule: str
    message: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        where = self.file or ""
        if self.line is not None:
            where += f":{self.line}"
        parts = [part for part in (where, self.field, self.message) if part]
        fix = f"\n    fix: {self.fix}" if self.fix else ""
        return f"{': '.join(parts)} [{self.rule}]{fix}"


class InputError(Exception):
    """Bad input: one or more findings; the process ends with exit code 2.

    `more` counts by rule further findings that were not kept (see Findings).
    """

    def __init__(
        self, findings: Finding | Iterable[Finding], more: Mapping[str, int] | None = None
    ) -> None:
        self.findings: list[Finding] = (
            [findings] if isinstance(findings, Finding) else list(findings)
        )
        self.more = dict(more or {})
        if not self.findings:
            raise ValueError("InputError needs at least one finding")
        super().__init__(render(self.findings, self.more))


class Stopped(Exception):
    """The work was interrupted in a resumable state; the process ends with exit code 75."""


def keep_first(
    found: Iterable[Finding], kept: list[Finding], more: Counter[str], limit: int = KEPT
) -> None:
    """Add findings to the first `limit`; those beyond are counted by rule."""
    for finding in found:
        if len(kept) < limit:
            kept.append(finding)
        else:
            more[finding.rule] += 1


class Findings:
    """Findings of any number in bounded memory: the first 20 in full, the rest counted by rule."""

    def __init__(self) -> None:
        self.shown: list[Finding] = []
        self.more: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self.shown)

    def add(self, findings: Iterable[Finding], more: Mapping[str, int] | None = None) -> None:
        """Take further findings, in their order; `more` were counted before."""
        keep_first(findings, self.shown, self.more, limit=SHOWN_IN_FULL)
        self.more.update(more or {})

    def error(self) -> InputError:
        """The exception that reports them."""
        return InputError(self.shown, self.more)


def render(findings: Sequence[Finding], more: Mapping[str, int] | None = None) -> str:
    """All findings as text: the first 20 in full, the rest (and `more`) counted by rule."""
    lines = [f"  {finding}" for finding in findings[:SHOWN_IN_FULL]]
    rest = Counter(finding.rule for finding in findings[SHOWN_IN_FULL:]) + Counter(more)
    lines += [f"  and {count} more of [{rule}]" for rule, count in sorted(rest.items())]
    count = min(len(findings), SHOWN_IN_FULL) + rest.total()
    noun = "finding" if count == 1 else "findings"
    return f"{count} {noun}:\n" + "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """Give "did you mean 'x'?" for the known name closest to `name`, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
