"""A blind sheet for human judgement: two answers an item, in an order that the judge cannot guess.

The sheet is a CSV for any spreadsheet; which answer is the adapter's stands in a key apart. What a
judge may change is one column. Wins and losses are compared by the exact two-sided sign test
(Conover 1999, Practical Nonparametric Statistics, section 3.4); ties say nothing and are left out.
"""

import csv
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hashtune.errors import Finding, InputError

COLUMNS = ("id", "question", "answer 1", "answer 2", "better")
VERDICTS = ("1", "2", "=")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a cell that begins so
FIX = "export the sheet again, and fill in the column `better` alone"


@dataclass(frozen=True, slots=True)
class Item:
    """One question with both answers."""

    id: str
    question: str
    base: str
    adapter: str


@dataclass(frozen=True, slots=True)
class Score:
    """What the judges said. `chance`: two-sided, of so uneven a split if both were as good."""

    items: int
    won: int
    lost: int
    ties: int
    chance: float


def choose(items: Sequence[Item], *, most: int | None, seed: int) -> list[Item]:
    """Items whose answers differ, at most `most` of them, drawn by hash and not by how they went.

    Raises:
        InputError: no item has two different answers.
    """
    apart = [item for item in items if item.base.strip() != item.adapter.strip()]
    if not apart:
        fix = "judge after a run that changed something"
        raise InputError(Finding("nothing-to-judge", "base and adapter answer alike", fix=fix))
    drawn = sorted(apart, key=lambda item: _draw(seed, "item", item.id))
    return drawn if most is None else drawn[:most]


def sheet(items: Sequence[Item], *, seed: int) -> tuple[str, dict[str, Any]]:
    """The CSV, and the key: which answer is the adapter's, and the hash of each row's texts."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    key: dict[str, Any] = {}
    for item in items:
        first = _draw(seed, "side", item.id)[0] % 2 == 0
        answers = (item.adapter, item.base) if first else (item.base, item.adapter)
        row = [_cell(text) for text in (item.id, item.question, *answers)]
        writer.writerow([*row, ""])
        key[row[0]] = {"adapter": 1 if first else 2, "sha256": _texts(row[1:])}
    return sink.getvalue(), {"seed": seed, "items": key}


def read_sheet(text: str, key: Mapping[str, Any], *, file: str) -> Score:
    """Score a sheet that came back.

    Raises:
        InputError: every row that is missing, unknown, repeated, altered or not judged; its line
            is the number that a spreadsheet shows, since a cell may hold several lines.
    """
    rows = _rows(text, file)
    if not rows or tuple(cell.strip() for cell in rows[0]) != COLUMNS:
        message = f"does not begin with the columns {', '.join(COLUMNS)}"
        raise InputError(Finding("sheet-columns", message, file=file, line=1, fix=FIX))
    items: Mapping[str, Any] = key["items"]
    findings: list[Finding] = []
    verdicts: dict[str, str] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not any(row):
            continue
        problem = _problem(row, items, verdicts)
        if problem:
            findings.append(Finding("sheet-row", problem, file=file, line=number, fix=FIX))
        else:
            verdicts[row[0]] = row[4].strip()
    known = {row[0] for row in rows[1:] if row}
    findings += [
        Finding("sheet-row", f"the row of {name} is missing", file=file, fix=FIX)
        for name in items
        if name not in known
    ]
    if findings:
        raise InputError(findings)
    return _score(verdicts, items)


def _rows(text: str, file: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))
    except csv.Error as error:  # a quote that is never closed makes one cell of the whole rest
        raise InputError(Finding("sheet-columns", f"is no CSV: {error}", file, fix=FIX)) from error


def _problem(row: Sequence[str], items: Mapping[str, Any], seen: Mapping[str, str]) -> str | None:
    if len(row) != len(COLUMNS):
        return f"has {len(row)} cells, not {len(COLUMNS)}"
    if row[0] not in items:
        return f"{row[0]!r} is no item of the key"
    if row[0] in seen:
        return f"{row[0]} stands there twice"
    if _texts(row[1:4]) != items[row[0]]["sha256"]:
        return f"the texts of {row[0]} are not the exported ones"
    if row[4].strip() not in VERDICTS:
        return f"{row[0]} is not judged: `better` is {row[4]!r}, not 1, 2 or ="
    return None


def _score(verdicts: Mapping[str, str], items: Mapping[str, Any]) -> Score:
    ties = sum(verdict == "=" for verdict in verdicts.values())
    won = sum(verdict == str(items[name]["adapter"]) for name, verdict in verdicts.items())
    lost = len(verdicts) - ties - won
    return Score(len(verdicts), won, lost, ties, sign_test(won, lost))


def sign_test(won: int, lost: int) -> float:
    """Two-sided exact probability of a split at least so uneven when both are as likely."""
    judged, fewer = won + lost, min(won, lost)
    tail = sum(math.comb(judged, count) for count in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**judged))


def _draw(seed: int, what: str, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\n{what}\n{name}".encode()).digest()


def _texts(cells: Sequence[str]) -> str:
    """Hash of a row's texts; spreadsheets write line ends in their own way."""
    plain = "\0".join("\n".join(cell.splitlines()) for cell in cells)
    return hashlib.sha256(plain.encode()).hexdigest()


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) or _typed(text) else text


def _typed(text: str) -> bool:
    """Whether a spreadsheet would take the cell for a number, a date or a truth value and write it
    back in its own way: 18.50 as 18.5."""
    letters = {char for char in text if char.isalpha()}
    number = letters <= {"e", "E"} and any(char.isdigit() for char in text)
    return number or text.strip().casefold() in ("true", "false")
