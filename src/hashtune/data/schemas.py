"""From rows of a declared schema to conversations.

messages      {"id"?, "messages": [{"role", "content", ...}, ...], "group"?}
instruction   {"id"?, "instruction", "input"?, "output", "system"?, "group"?}

One file has one schema. Other fields of a row are ignored and counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hashtune import writers
from hashtune.data.messages import Place, check_messages, check_text, is_blank, kind
from hashtune.errors import Finding
from hashtune.records import Conversation, Message

Schema = Literal["messages", "instruction"]
FIELDS: dict[str, frozenset[str]] = {
    "messages": frozenset({"id", "messages", "group"}),
    "instruction": frozenset({"id", "instruction", "input", "output", "system", "group"}),
}
# what a row looks like, told by a field with a value; the first that fits wins
SIGNS = {
    "messages": "messages",
    "instruction": "instruction",
    "conversations": "conversations (ShareGPT)",
    "prompt": "prompt/completion",
}
ID_HEX = 16


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
    """A row of build/prepare/*.parquet (records.conversation_schema): `messages` is compact
    canonical JSON without a final newline."""
    return {
        "id": conversation.id,
        "source": conversation.source,
        "line": conversation.line,
        "group": conversation.group,
        "messages": writers.canonical_json(conversation.messages, indent=None).removesuffix("\n"),
    }


def parse_rows(
    rows: Iterable[tuple[int, dict[str, Any]]], *, schema: Schema, source: str, shown: str
) -> Parsed:
    """Turn (line, row) pairs into conversations of `source`; `shown` is the file in findings."""
    parsed = Parsed()
    for line, row in rows:
        place = Place(shown, line)
        parsed.extra.update(key for key in row if key not in FIELDS[schema])
        findings = _check_row(row, schema, place)
        if findings:
            parsed.bad.append(BadRow(content_id(row), line, findings))
            continue
        messages = row["messages"] if schema == "messages" else _from_instruction(row)
        group = row.get("group")
        parsed.conversations.append(
            Conversation(
                id=content_id(messages),
                source=source,
                messages=messages,
                line=line,
                group=None if group is None else str(group),
            )
        )
    return parsed


def _check_row(row: Mapping[str, Any], schema: Schema, place: Place) -> list[Finding]:
    if row.get(schema) is None:
        other = next((name for key, name in SIGNS.items() if row.get(key) is not None), schema)
        if other != schema:
            message = f"schema {other}, file is declared as {schema}"
            return [Finding("mixed-schema", message, file=place.file, line=place.line)]
    if schema == "instruction":
        findings = _check_instruction(row, place)
    elif "messages" not in row:
        findings = [place.finding("missing", "messages", "missing")]
    else:
        findings = check_messages(row["messages"], place)
    return findings + _check_group(row.get("group"), place)


def _check_group(group: object, place: Place) -> list[Finding]:
    if group is None or kind(group) == "string":
        blank = isinstance(group, str) and is_blank(group)  # would be one giant group
        return [place.finding("blank", "group", "blank")] if blank else []
    if isinstance(group, int) and not isinstance(group, bool):
        return []
    return [place.finding("wrong-type", "group", f"expected string, got {kind(group)}")]


def _check_instruction(row: Mapping[str, Any], place: Place) -> list[Finding]:
    findings = []
    for key in ("instruction", "output"):
        findings += check_text(row, key, key, place)
    for key in ("input", "system"):  # null and "" both mean: there is none
        if row.get(key) is not None:
            findings += check_text(row, key, key, place, may_be_blank=True)
    return findings


def _from_instruction(row: Mapping[str, Any]) -> list[Message]:
    messages = []
    system, extra = row.get("system"), row.get("input")
    if system is not None and not is_blank(system):
        messages.append({"role": "system", "content": system})
    prompt = row["instruction"]
    if extra is not None and not is_blank(extra):
        prompt = f"{prompt}\n\n{extra}"
    messages.append({"role": "user", "content": prompt})
    messages.append({"role": "assistant", "content": row["output"]})
    return messages
