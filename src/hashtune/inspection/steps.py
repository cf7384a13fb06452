"""What a training step saw: its rows and documents, and where each document was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.inspection.lines import conversation_of, lines_of
from hashtune.inspection.sheets import Sheet
from hashtune.records import trained_count

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an example was read: the declared source, its file, and the line (1-based; in Parquet
    the row) there."""

    source: str
    file: str
    line: int

    def __str__(self) -> str:
        place = f" row {self.line}" if self.file.endswith(".parquet") else f":{self.line}"
        return f"{self.file}{place} ({self.source})"


def origins(
    examples: Sequence[str], conversations: Sequence[Record], files: Mapping[str, str]
) -> dict[str, Origin]:
    """The origin of each example by its id.

    Args:
        examples: ids.
        conversations: "id", "source" and "line" of records.conversation_schema.
        files: declared source -> its file.

    Raises:
        InputError: a conversation or a source is not there: the outputs are of two runs.
    """
    places = lines_of(examples, conversations)
    found: dict[str, Origin] = {}
    findings = []
    for example in examples:
        source, line = places.get(example, (None, 0))
        if source is None:
            message = f"has no conversation {conversation_of(example)!r}"
            findings.append(_foreign(message, "build/prepare/train.parquet"))
        elif source not in files:
            message = f"names the source {source!r}, which the spec does not declare"
            findings.append(_foreign(message, "build/prepare/train.parquet"))
        else:
            found[example] = Origin(source, files[source], line)
    if findings:
        raise InputError(findings)
    return found


def in_order(step: Record, rows: Sequence[Record]) -> list[Record]:
    """The step's rows in the order they are seen; InputError names those that are not there."""
    by_number = {row["row"]: row for row in rows}
    findings = [
        _foreign(f"has no row {number} of step {step['step']}", "build/pack/train.parquet")
        for number in step["rows"]
        if number not in by_number
    ]
    if findings:
        raise InputError(findings)
    return [by_number[number] for number in step["rows"]]


def check_examples(rows: Sequence[Record], examples: Sequence[Record]) -> None:
    """Raise InputError naming each document of the rows that is no example of tokenize."""
    known = {example["id"] for example in examples}
    findings = [
        _foreign(f"has no example {name!r} of row {row['row']}", "build/tokenize/train.parquet")
        for row in rows
        for name in row["example_ids"]
        if name not in known
    ]
    if findings:
        raise InputError(findings)


def _foreign(message: str, file: str) -> Finding:
    return Finding("other-plan", message, file=file, fix="dvc repro pack")


def listing(step: Record, rows: Sequence[Record], where: Mapping[str, Origin]) -> Sheet:
    """A step (records.step_schema) and its rows (records.row_schema) in the order they are seen.

    A row's weight is its share of the trained tokens, which is its share of the step's loss.
    """
    documents = sum(len(row["lengths"]) for row in rows)
    facts = [
        f"epoch {step['epoch']}, {len(rows)} rows, {documents} documents, "
        f"{step['tokens']} tokens, {step['trained_tokens']} trained"
    ]
    for row in rows:
        trained = trained_count(row["labels"])
        weight = trained / max(1, step["trained_tokens"])
        size = len(row["input_ids"])
        facts.append(f"row {row['row']}: {size} tokens, {trained} trained, weight {weight:.4f}")
        edges = pairwise(accumulate(row["lengths"], initial=0))
        for name, (start, end) in zip(row["example_ids"], edges, strict=True):
            trained = trained_count(row["labels"][start:end])
            facts.append(f"  {name}: {end - start} tokens, {trained} trained, {where[name]}")
    return Sheet(f"step {step['step']}", facts)
