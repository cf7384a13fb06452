"""A file of the fuzz, and what must come out of it."""

from dataclasses import dataclass, field
from typing import Any

from fuzz.rows import Messages, Row

BOM = b"\xef\xbb\xbf"
ANYTHING = "anything"  # the rule of a line of which nothing is stated


@dataclass(slots=True)
class Case:
    """A file and what must come out: messages by line, rules of bad rows by line, and the findings
    of the file as (rule, line); a line of 0 stands for any. `maker` names how it was made;
    `outcomes` say by line what tokenize makes of it under `template` (fuzz.templates), where that
    is not what the plain one makes of plain texts."""

    maker: str
    format: str
    schema: str
    data: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)
    kept: dict[int, Messages] = field(default_factory=dict)
    bad: dict[int, str] = field(default_factory=dict)
    damaged: list[tuple[str, int]] = field(default_factory=list)
    template: str = "base"
    outcomes: dict[int, Any] = field(default_factory=dict)

    def only(self, rule: str, line: int) -> None:
        """One fault hides every row."""
        self.kept, self.bad, self.damaged = {}, {}, [(rule, line)]

    def note(self, row: Row, line: int) -> None:
        """State what must come out of the row at this line."""
        self.maker += f" {row.maker}"
        if row.kept is not None:
            self.kept[line] = row.kept
            if row.outcome is not None:
                self.outcomes[line] = row.outcome
        elif row.bad:
            self.bad[line] = row.bad
        else:
            self.damaged.append((str(row.damaged), line))
