"""Which rows of the data files came, went or changed between two revisions.

A row is compared whole. One that went and one that came count as a change when they have the same
`id`, or else the same first user message, prompt or question. Files that Git does not hold (a URL,
a .dvc file) are told by their hash alone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hashtune.data.formats import read_rows
from hashtune.data.lines import Log
from hashtune.lineage.lock import lookup
from hashtune.spec.rows import Format
from hashtune.writers import sha256_file

ROLES = ("data.eval", "data.test", "data.replay")
LISTS = ("data.sources", "regression.suites")
Rows = list[dict[str, Any]]
REORDERED = "The same rows in another order: a split, a cap or a batch may take others."
SPELLED = "The same rows in the same order, written otherwise (spaces, escapes, order of keys)."
QUESTIONS = ("prompt", "question", "instruction", "input")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that the spec names: `role` says what for."""

    role: str
    uri: str
    format: Any
    sha256: str | None


@dataclass(slots=True)
class RowDifference:
    """What changed in the file of a role; `note` where rows cannot be told apart."""

    role: str
    uri: str
    before: int = 0
    after: int = 0
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[tuple[str, str]] = field(default_factory=list)
    note: str | None = None
    same: str = ""  # the rows are the same: what then differs in the file
    gone: bool = False  # the head names a file that it had and has not, in Git or as a .dvc file


def data_files(params: Mapping[str, Any]) -> dict[str, DataFile]:
    """Role ("data.sources.triage") to the file that params.yaml names for it."""
    entries = [(role, lookup(params, role)) for role in ROLES]
    for section in LISTS:
        named = lookup(params, section)
        for entry in named if isinstance(named, list) else ():
            name = entry.get("name") if isinstance(entry, Mapping) else None
            entries.append((f"{section}.{name}", entry))
    files = (_data_file(role, entry) for role, entry in entries)
    return {file.role: file for file in files if file is not None}


def _data_file(role: str, entry: object) -> DataFile | None:
    """None for an entry without a file, and for one that breaks the schema, which is told."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("uri"), str):
        return None
    form = entry.get("format", "jsonl")  # a revision from before the field
    pin = entry.get("sha256")
    if form not in get_args(Format) or not entry["uri"] or "\0" in entry["uri"]:
        return None
    return DataFile(role, entry["uri"], form, pin if isinstance(pin, str) else None)


def row_differences(
    base: Path, head: Path, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[RowDifference]:
    """One entry for each role whose file changed, came or went."""
    before, after = data_files(old), data_files(new)
    found = []
    for role in [*after, *(role for role in before if role not in after)]:
        pair = before.get(role), after.get(role)
        contents = [_hash(root, file) for root, file in zip((base, head), pair, strict=True)]
        if _gone(base, head, *pair):
            note = "is gone: neither Git nor a .dvc file has it in the head"
            found.append(RowDifference(role, pair[1].uri if pair[1] else "", note=note, gone=True))
        elif contents[0] != contents[1]:
            found.append(_difference(role, base, head, *pair))
    return found


def leaks(head: Path, found: Iterable[RowDifference], params: Mapping[str, Any]) -> int:
    """How many added or changed training rows have the question of a row of the test file. The
    whole search, by words and groups too, is prepare's."""
    test = data_files(params).get("data.test")
    path = _inside(head, test) if test else None
    rows = [row for row in found if row.role.startswith("data.sources.")]
    if test is None or path is None or not rows:
        return 0
    asked = {question(row) for row in _rows(path, test)[0]} - {None}
    came = [text for row in rows for text in [*row.added, *(new for _, new in row.changed)]]
    return sum(question(json.loads(text)) in asked for text in came)


def _hash(root: Path, file: DataFile | None) -> str | None:
    if file is None:
        return None
    path = _inside(root, file)
    return sha256_file(path) if path else file.sha256


def _inside(root: Path, file: DataFile) -> Path | None:
    """The file in the revision's folder, or None for a URL, a path that leaves it, or no file."""
    path = (root / file.uri).resolve()
    return path if path.is_relative_to(root.resolve()) and path.is_file() else None


def _gone(base: Path, head: Path, old: DataFile | None, new: DataFile | None) -> bool:
    if old is None or new is None or _inside(base, old) is None or _inside(head, new):
        return False
    if "://" in new.uri:
        return False
    paths = [Path(new.uri), *Path(new.uri).parents]
    return not any((head / f"{path}.dvc").is_file() for path in paths)


def _difference(
    role: str, base: Path, head: Path, old: DataFile | None, new: DataFile | None
) -> RowDifference:
    known = new or old
    assert known is not None
    found = RowDifference(role, known.uri)
    sides: list[Rows] = []
    for root, file in ((base, old), (head, new)):
        path = _inside(root, file) if file else None
        if file and path is None:
            found.note = "is not in Git: its hash changed, its rows are not compared"
            return found
        rows, faults = _rows(path, file) if file and path else ([], 0)
        if faults:
            found.note = (
                f"holds {faults} rows that cannot be read; `hashtune check` and prepare say which"
            )
        sides.append(rows)
    found.before, found.after = len(sides[0]), len(sides[1])
    _compare(sides[0], sides[1], found)
    if not (found.added or found.removed or found.changed or found.note):
        found.same = SPELLED if [*map(_text, sides[0])] == [*map(_text, sides[1])] else REORDERED
    return found


def _rows(path: Path, file: DataFile) -> tuple[list[dict[str, Any]], int]:
    log = Log(file.uri)
    rows = [row.value for row in read_rows(path, file.format, log, needed=())]
    return rows, len(log.findings) + log.more.total()


def _compare(old: Rows, new: Rows, found: RowDifference) -> None:
    before, after = Counter(map(_text, old)), Counter(map(_text, new))
    gone, came = list((before - after).elements()), list((after - before).elements())
    keyed: defaultdict[str, list[str]] = defaultdict(list)
    for text in came:
        keyed[_key(text)].append(text)
    for text in gone:
        partners = keyed[_key(text)]
        if partners:
            found.changed.append((text, partners.pop(0)))
        else:
            found.removed.append(text)
    rest = Counter(text for texts in keyed.values() for text in texts)
    for text in came:
        if rest[text]:
            rest[text] -= 1
            found.added.append(text)


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)  # Parquet holds dates


def _key(text: str) -> str:
    """What stays the same when a row is edited: its id or its question; else the whole row."""
    row = json.loads(text)
    return f"id={row['id']}" if isinstance(row.get("id"), str | int) else question(row) or text


def question(row: Mapping[str, Any]) -> str | None:
    """What a row asks: its prompt, question or instruction, or else its first user message."""
    texts = [str(row[name]) for name in QUESTIONS if isinstance(row.get(name), str)]
    if texts:
        return "\n".join(texts)
    return next(_first_user(row.get("messages") or row.get("conversations")), None)


def _first_user(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and (message.get("role") or message.get("from")) in (
            "user",
            "human",
        ):
            yield str(message.get("content") or message.get("value"))
