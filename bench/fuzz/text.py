"""JSON lines and JSON arrays of sound, bad and damaged rows, and faults of the whole file."""

import bz2
import gzip
import lzma
from random import Random

from fuzz.case import ANYTHING, BOM, Case
from fuzz.rows import Row, bad_row, damaged_row, kept_row

LIMIT = 16 * 1024 * 1024  # bytes of a line


def _rows(random: Random, schema: str) -> list[Row]:
    makers = (kept_row, kept_row, kept_row, bad_row, damaged_row)
    return [random.choice(makers)(random, schema) for _ in range(random.randint(1, 6))]


def _schema(random: Random) -> str:
    return random.choice(("messages", "messages", "instruction", "sharegpt", "prompt_completion"))


def jsonl(random: Random) -> Case:
    case = Case("jsonl", "jsonl", _schema(random))
    rows = _rows(random, case.schema)
    end = random.choice((b"\n", b"\n", b"\r\n", b" \t\n"))
    line, first = 1, True
    for row in rows:
        if random.random() < 0.1:
            case.data += random.choice((b"", b" \t", b"\r")) + b"\n"
            line += 1
        found = _seen_by_jsonl(random, row, line, first)
        case.data += found.text + end
        case.note(found, line)
        if b"\0" in found.text and line == 1:
            case.only("not-utf8", 1)  # taken for UTF-16: nothing after it is read
            return case
        line, first = line + 1, False
    _spoil_text(random, case, found, line - 1)
    return case


def _seen_by_jsonl(random: Random, row: Row, line: int, first: bool) -> Row:
    """What the row is as a line: an array at the start means another format; at times it gets a
    byte order mark in front, or random bytes in it, which may mean anything in this line only."""
    if first and row.text.startswith(b"["):
        return Row(row.maker, row.text, damaged="array")
    if line > 1 and random.random() < 0.03:
        return Row("bom", BOM + row.text, damaged="bom-in-middle")
    if random.random() < 0.1:
        at = random.randrange(1, len(row.text) + 1)
        noise = random.randbytes(random.randint(1, 4)).replace(b"\n", b"").replace(b"\0", b"")
        text = row.text[:at] + noise + row.text[at + random.randint(0, 4) :]
        return Row("noise", text, damaged=ANYTHING)
    return row


def _spoil_text(random: Random, case: Case, last: Row, line: int) -> None:
    """At times something that concerns the whole file."""
    choice = random.choice(
        ("", "", "", "bom", "no-end", "cut", "utf-16", "other", "empty", "array", "carriage")
    )
    case.maker += f" {choice}"
    if choice == "bom" and not case.data.startswith((b"\n", b"\r", b" ")):
        case.data = BOM + case.data
    elif choice == "no-end" and last.value is not None:
        case.data = case.data.rstrip(b" \t\r\n")
    elif choice == "cut" and last.value is not None and case.data.rstrip().endswith(last.text):
        start = len(case.data.rstrip()) - len(last.text)
        case.data = case.data[: start + random.randrange(1, len(last.text))]
        case.kept.pop(line, None), case.bad.pop(line, None)
        case.damaged = [found for found in case.damaged if found[1] != line]
        case.damaged.append(("cut-off-line", line))
    elif choice == "utf-16":
        case.data = case.data.decode("utf-8", "replace").encode("utf-16")
        case.only(f"not-{case.format}", 1)
    elif choice == "other":
        case.data = another_format(random, case.data)
        case.only(f"not-{case.format}", 1)
    elif choice == "carriage":  # as old Macs ended lines: one line, more than one value
        row = kept_row(random, case.schema)
        case.data = b"\r".join([row.text] * random.randint(2, 4)) + random.choice((b"", b"\r"))
        case.only("json", 1)
    elif choice == "empty":
        case.data = random.choice((b"", b"\n", b" \r\n\n", BOM))
        case.only("no-rows", 0)
    elif choice == "array":
        case.data = b"[\n" + case.data + b"]\n"
        case.only("array", 1)


def another_format(random: Random, data: bytes) -> bytes:
    """The file packed, or something else in its place."""
    pack = random.choice((gzip.compress, bz2.compress, lzma.compress, None))
    if pack:
        return bytes(pack(data))
    return random.choice(
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            b"<!DOCTYPE html>\n<title>404</title>\n",
            b"PK\x03\x04" + random.randbytes(20),
            b"SQLite format 3\0" + random.randbytes(20),
            b"ARROW1\0\0" + random.randbytes(20),
            b"%PDF-1.7\n" + random.randbytes(20),
        )
    )


def long_line(random: Random) -> Case:
    """A line above the limit between two sound ones."""
    case = Case("long", "jsonl", "messages")
    rows = [kept_row(random, case.schema) for _ in range(2)]
    size = LIMIT + random.randint(-200, 200)
    huge = b'{"messages": "' + b"x" * size + b'"}'
    case.data = b"\n".join([rows[0].text, huge, rows[1].text])
    case.note(rows[0], 1)
    case.note(rows[1], 3)
    if len(huge) + 1 > LIMIT + 1:
        case.damaged.append(("line-too-long", 2))
    else:
        case.bad[2] = "wrong-type"
    return case


def array(random: Random) -> Case:
    case = Case("array", "json", _schema(random))
    rows = _rows(random, case.schema)
    case.data = b"[\n" + b",\n".join(row.text for row in rows)
    for line, row in enumerate(rows, start=2):
        case.note(row, line)
    choice = random.choice(("", "", "bom", "comma", "cut", "more", "object", "other", "empty"))
    case.maker += f" {choice}"
    if choice == "cut":
        if rows[-1].value is None:
            case.data += b"\n]"
            return case
        case.data = case.data[: len(case.data) - random.randrange(0, len(rows[-1].text))]
        line = len(rows) + 1
        case.kept.pop(line, None), case.bad.pop(line, None)
        case.damaged.append(("cut-off-line", 0))
        return case
    if choice == "comma":
        case.data += b","
        case.damaged.append(("json", 0))
    case.data += random.choice((b"]", b"\n]\n", b" ] \r\n"))
    if choice == "bom":
        case.data = BOM + case.data
    elif choice == "more":
        case.data += b"x"
        case.damaged.append(("json", 0))
    elif choice == "object":
        case.data = b'{"rows": ' + case.data + b"}"
        case.only("not-json", 1)
    elif choice == "other":
        case.data = another_format(random, case.data)
        case.only("not-json", 1)
    elif choice == "empty":
        case.data = b"[ \n]"
        case.only("no-rows", 0)
    return case
