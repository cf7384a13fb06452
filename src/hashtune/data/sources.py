"""Find, verify and read the declared data files; nothing is parsed before its hash is right."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hashtune.data.cleaning import Judge, Policy
from hashtune.data.formats import read_rows
from hashtune.data.leakage import Item
from hashtune.data.lines import Log, ReadRow
from hashtune.data.located import check_pin, resolve
from hashtune.data.messages import Place, check_text
from hashtune.data.schemas import BadRow, each_row
from hashtune.errors import Finding
from hashtune.records import Conversation, Dropped
from hashtune.spec.rows import Format, Schema, columns, used_columns

QUESTION_KEYS = ("prompt", "question")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A declared file: `field` is where the spec names it; `pinned` is off for stage outputs;
    `fields` maps names of the schema to the file's own; `path` is where a remote file lies now."""

    name: str
    uri: str
    sha256: str | None
    schema: Schema
    field: str
    pinned: bool = True
    format: Format = "jsonl"
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    path: Path | None = None


class Sink(Protocol):
    """Where the rows of a file go, one by one in file order."""

    def keep(self, row: Conversation) -> None:
        """Take a sound row."""

    def drop(self, row: Dropped) -> None:
        """Take a row that the policy drops."""


@dataclass(slots=True)
class Loaded:
    """One file after reading: rows == kept + dropped unless it has findings, of which those beyond
    the first are counted by rule in `more`. A sink that holds the rows in memory."""

    file: DataFile
    rows: int = 0
    conversations: list[Conversation] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    extra: Counter[str] = field(default_factory=Counter)

    def keep(self, row: Conversation) -> None:
        """Take a sound row."""
        self.conversations.append(row)

    def drop(self, row: Dropped) -> None:
        """Take a row that the policy drops."""
        self.dropped.append(row)


def _rows(
    file: DataFile,
    root: Path,
    log: Log,
    needed: Sequence[str],
    used: Collection[str] | None = None,
) -> Iterator[ReadRow]:
    """Locate, verify, read: the first of the three that fails gives the findings."""
    path = file.path or resolve(file.uri, root, field=f"{file.field}.uri")
    if isinstance(path, Finding):
        log.findings.append(path)
        return
    if file.pinned:
        pin = f"{file.field}.sha256"
        finding = check_pin(path, sha256=file.sha256, field=pin, shown=file.uri)
        if finding:
            log.findings.append(finding)
            return
    empty = True
    for row in read_rows(path, file.format, log, needed=needed, used=used):
        empty = False
        yield row
    if empty and not log.findings:
        log.findings.append(Finding("no-rows", "0 rows", file=file.uri, field=file.field))


def load(file: DataFile, root: Path, policy: Policy, sink: Sink | None = None) -> Loaded:
    """Read a file of conversations into the sink, or into the result. A row that breaks its schema
    falls under the policy; a file that is damaged (encoding, JSON, cells) is refused whatever the
    policy says."""
    log = Log(file.uri)
    loaded = Loaded(file)
    into: Sink = loaded if sink is None else sink
    judge = Judge(policy, source=file.name, shown=file.uri)
    needed = columns(file.schema, file.fields)
    for row in each_row(
        _rows(file, root, log, needed, used_columns(file.schema, file.fields)),
        schema=file.schema,
        source=file.name,
        shown=file.uri,
        fields=file.fields,
        extra=loaded.extra,
    ):
        loaded.rows += 1
        if not isinstance(row, BadRow):
            into.keep(row)
        elif dropped := judge.of_row(row):
            into.drop(dropped)
    verdict = judge.of_file(kept=loaded.rows - judge.bad)
    loaded.findings = log.findings + verdict.findings
    loaded.more = log.more + verdict.more
    loaded.notes = log.notes
    return loaded


def load_questions(file: DataFile, root: Path) -> tuple[list[Item], list[Finding]]:
    """The prompt texts of a regression suite ("prompt" or "question" of each line)."""
    log = Log(file.uri)
    items, findings = [], []
    for line, row, _ in _rows(file, root, log, ()):
        keys = [key for key in QUESTION_KEYS if key in row]
        key = keys[0] if keys else QUESTION_KEYS[0]
        found = check_text(row, key, " or ".join(keys or QUESTION_KEYS), Place(file.uri, line))
        findings += found
        if not found:
            items.append(Item(file.uri, line, [row[key]]))
    return items, log.findings + findings


def unique_names(files: Sequence[DataFile], reserved: set[str]) -> list[Finding]:
    """Findings for names given twice or reserved: reports and ledgers tell files apart by name."""
    findings, seen = [], set(reserved)
    for file in files:
        if file.name in seen:
            message = f"name {file.name!r} is taken"
            findings.append(Finding("name-taken", message, field=f"{file.field}.name"))
        seen.add(file.name)
    return findings
