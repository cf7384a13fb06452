"""From rows of a declared schema to conversations; see layouts for what each schema holds.

One file has one schema; `fields` maps a schema's names to the file's own. Every row may have an
"id" (not read) and a "group". Other fields of a row are ignored and counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hashtune import spelling, writers
from hashtune.data.field_names import masks_of_row, may_be_in_a_row, others
from hashtune.data.layouts import to_messages
from hashtune.data.lines import ReadRow
from hashtune.data.messages import Place, is_blank, kind, misspelled
from hashtune.errors import Finding
from hashtune.records import Conversation
from hashtune.spec.rows import FIELDS, NEEDED, Schema

# what a row looks like, told by a field with a value; the first that fits wins
SIGNS = {needed[0]: schema for schema, needed in NEEDED.items()}
SAME_NAMES: Mapping[str, str] = MappingProxyType({})
ID_HEX = 16
DROP = "leave the row out, or write it as messages and mask its answers"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that breaks the schema: its id is the hash of the whole row."""

    id: str
    line: int
    findings: list[Finding]


@dataclass(slots=True)
class Parsed:
    """The rows of one file: sound conversations, bad rows, and how often other fields occurred."""

    conversations: list[Conversation] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    extra: Counter[str] = field(default_factory=Counter)


def content_id(value: object) -> str:
    """First 16 hex digits of the sha256 of the compact canonical JSON of a value."""
    return writers.sha256_bytes(writers.canonical_json(value, indent=None).encode())[:ID_HEX]


def as_row(conversation: Conversation) -> dict[str, object]:
    """A row of build/prepare/*.parquet (records.conversation_schema): `messages` is compact JSON
    with its keys in the order of the file and its numbers as written, since a template prints tool
    arguments so."""
    messages = spelling.dumps(
        conversation.messages, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    return {
        "id": conversation.id,
        "source": conversation.source,
        "line": conversation.line,
        "group": conversation.group,
        "messages": messages,
    }


def parse_rows(
    rows: Iterable[ReadRow | tuple[int, dict[str, Any]]],
    *,
    schema: Schema,
    source: str,
    shown: str,
    fields: Mapping[str, str] = SAME_NAMES,
) -> Parsed:
    """The rows of `each_row` in memory; (line, row) pairs will do."""
    parsed = Parsed()
    numbered = (ReadRow(*item) for item in rows)
    for row in each_row(
        numbered, schema=schema, source=source, shown=shown, fields=fields, extra=parsed.extra
    ):
        if isinstance(row, BadRow):
            parsed.bad.append(row)
        else:
            parsed.conversations.append(row)
    return parsed


def each_row(
    rows: Iterable[ReadRow],
    *,
    schema: Schema,
    source: str,
    shown: str,
    fields: Mapping[str, str],
    extra: Counter[str],
) -> Iterator[Conversation | BadRow]:
    """Turn rows into conversations of `source`, one by one.

    `shown` is the file in findings; `fields` maps names of the schema to names in the file;
    `extra` counts the fields that are not read, and those of messages that only a template could.
    """
    optional = may_be_in_a_row(schema, fields)
    for row in rows:
        place = Place(shown, row.line)
        value, unread = _renamed(row.value, schema, fields)
        extra.update(unread)
        messages, findings = _convert(value, schema, place)
        if unread:
            findings = findings + misspelled(dict.fromkeys(unread), optional, place)
            findings += [
                place.finding("unknown-field", name, "is read in messages only, not of a row", DROP)
                for name in masks_of_row(row.value, unread)
            ]
        if findings:
            findings = [_in_file_words(finding, fields, row.element) for finding in findings]
            yield BadRow(content_id(row.value), row.line, findings)
            continue
        extra.update(others(messages))
        group = value.get("group")
        yield Conversation(
            id=content_id(messages),
            source=source,
            messages=messages,
            line=row.line,
            group=None if group is None else str(group),
        )


def _renamed(
    row: dict[str, Any], schema: Schema, fields: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The row under the schema's names, and the fields that are not read."""
    if not fields:
        return row, [key for key in row if key not in FIELDS[schema]]
    used = set(fields.values())
    value = {target: row[name] for target, name in fields.items() if name in row}
    value |= {key: row[key] for key in row if key not in used and key not in fields}
    known = FIELDS[schema] - fields.keys()
    return value, [key for key in row if key not in used and key not in known]


def _in_file_words(finding: Finding, fields: Mapping[str, str], element: int | None) -> Finding:
    """The finding with the names of the file, and the place in a JSON array."""
    path = finding.field or ""
    name = path.split(".")[0].split("[")[0]
    path = fields.get(name, name) + path[len(name) :]
    if element is not None:
        path = f"[{element}].{path}" if path else f"[{element}]"
    return replace(finding, field=path or None)


def _convert(
    row: Mapping[str, Any], schema: Schema, place: Place
) -> tuple[list[dict[str, Any]], list[Finding]]:
    if row.get(NEEDED[schema][0]) is None:
        other = next((name for key, name in SIGNS.items() if row.get(key) is not None), schema)
        if other != schema:
            message = f"schema {other}, file is declared as {schema}"
            fix = f"if the file is of this kind, declare schema: {other} (and fields:) in conf/data"
            finding = Finding("mixed-schema", message, file=place.file, line=place.line, fix=fix)
            return [], [finding]
    messages, findings = to_messages(row, schema, place)
    return messages, findings + _check_group(row.get("group"), place)


def _check_group(group: object, place: Place) -> list[Finding]:
    if group is None or kind(group) == "string":
        blank = isinstance(group, str) and is_blank(group)  # would be one giant group
        return [place.finding("blank", "group", "blank")] if blank else []
    if isinstance(group, int) and not isinstance(group, bool):
        return []
    return [place.finding("wrong-type", "group", f"expected string, got {kind(group)}")]
