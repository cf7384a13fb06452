"""CSV, TSV and Parquet files of instruction rows, and faults of the whole file."""

import csv
import io
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.case import BOM, Case
from fuzz.rows import TEXTS
from fuzz.text import another_format


def table(random: Random) -> Case:
    """CSV or TSV of instruction rows; a quoted cell may hold line ends, so lines are counted."""
    kind = random.choice(("csv", "tsv"))
    case = Case(kind, kind, "instruction")
    out = io.StringIO()
    end = random.choice(("\n", "\r\n"))
    mark = "," if kind == "csv" else "\t"
    quoting = random.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL))
    writer = csv.writer(out, delimiter=mark, lineterminator=end, quoting=quoting)
    case.fields = random.choice(({}, {"output": "output of it", "instruction": "Frage"}))
    answers = case.fields.get("output", "output")
    writer.writerow([answers, case.fields.get("instruction", "instruction"), "extra"])
    line = 2
    for _ in range(random.randint(1, 6)):
        line = _table_row(random, case, out, writer, line)
    case.data = out.getvalue().encode("utf-8")
    choice = random.choice(
        ("", "", "bom", "utf-16", "header", "twice", "delimiter", "open", "byte", "other")
    )
    case.maker += f" {choice}"
    header, _, body = case.data.partition(b"\n")
    if choice == "bom":
        case.data = BOM + case.data
    elif choice == "utf-16":
        case.data = out.getvalue().encode("utf-16")
        case.only(f"not-{kind}", 1)
    elif choice == "other":
        case.data = another_format(random, case.data)
        case.only(f"not-{kind}", 1)
    elif choice == "header":
        case.data = header.replace(b"output", b"Output", 1) + b"\n" + body
        case.only("missing-column", 1)
    elif choice == "twice":
        case.data = header.replace(b"extra", answers.encode()) + b"\n" + body
        case.only("columns", 1)
    elif choice == "delimiter":
        case.data = b"output;instruction\n" + body
        case.only("columns", 1)
    elif choice == "open":
        case.data += f'"a"{mark}"b"{mark}"never closed'.encode()
        case.damaged.append(("cut-off-line", line))
    elif choice == "byte":
        case.data += f'"a"{mark}"b"{mark}"c'.encode() + b'\xff"\n'
        case.damaged.append(("not-utf8", line))
    if not (case.kept or case.bad or case.damaged):
        case.only("no-rows", 0)
    return case


def _table_row(random: Random, case: Case, out: io.StringIO, writer: Any, line: int) -> int:
    """Write one record; give the line of the next."""
    before = out.tell()
    answer, question = random.choice(TEXTS) + "1", random.choice(TEXTS) + "2"
    if answer.startswith("\ufeff"):  # without quotes a line that starts so looks joined on
        answer = f" {answer}"
    choice = random.random()
    if choice < 0.05:
        writer.writerow([])  # a blank line
    elif choice < 0.1:
        out.write("a\rb\n")
        case.damaged.append(("csv", line))
    elif choice < 0.7:
        writer.writerow([answer, question, random.choice(("", "x"))])
        case.kept[line] = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    elif choice < 0.85:
        writer.writerow([random.choice(("", " ", "\u200b\n")), question, "x"])
        case.bad[line] = "blank"
    else:
        writer.writerow([answer, question] + ["x"] * random.choice((0, 2)))
        case.damaged.append(("cells", line))
    out.seek(before)
    return line + out.read().count("\n")


def parquet(random: Random) -> Case:
    """Parquet of instruction rows; rows are numbered from 1."""
    case = Case("parquet", "parquet", "instruction")
    rows = []
    for line in range(1, random.randint(2, 7)):
        question, answer = random.choice(TEXTS) + "1", random.choice(TEXTS) + "2"
        case.kept[line] = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
        if random.random() < 0.2:
            answer = random.choice((None, " \n"))
            del case.kept[line]
            case.bad[line] = "blank" if answer else "null"
        rows.append({"instruction": question, "output": answer, "raw": b"\xff"})
    kind = random.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())))
    columns = _columns(rows, kind)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression=random.choice(("none", "zstd", "snappy")))
    case.data = sink.getvalue().to_pybytes()
    choice = random.choice(("", "", "cut", "magic", "text", "column", "used", "unused"))
    case.maker += f" {choice}"
    if choice == "cut":
        case.data = case.data[: random.randrange(4, len(case.data))]
        case.only("not-parquet", 0)
    elif choice == "magic":
        case.data = random.choice((b"PAR2" + case.data[4:], another_format(random, case.data)))
        case.only("not-parquet", 0)
    elif choice in {"used", "unused"}:  # by the schema, though no row needs it
        name = random.choice(("group", "system", "input") if choice == "used" else ("id", "score"))
        strange = random.choice(
            (pa.array([0] * len(rows), pa.date32()), pa.array([b"\xff"] * len(rows)))
            if choice == "used"
            else (pa.array([float("nan")] * len(rows)), pa.array([0] * len(rows), pa.time32("s")))
        )
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({**columns, name: strange}), sink)
        case.data = sink.getvalue().to_pybytes()
        if choice == "used":
            case.only("column-type", 0)
    elif choice == "text":
        case.data = b'{"instruction": "a", "output": "b"}\n'
        case.only("not-parquet", 0)
    elif choice == "column":
        sink = pa.BufferOutputStream()
        times = pa.array([0] * len(rows), pa.timestamp("s"))
        pq.write_table(pa.table({**columns, "output": times}), sink)
        case.data = sink.getvalue().to_pybytes()
        case.only("column-type", 0)
    return case


MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def parquet_messages(random: Random) -> Case:
    """Parquet of messages; an absent field and null are one there."""
    case = Case("parquet-messages", "parquet", "messages")
    rows: list[Any] = []
    for line in range(1, random.randint(2, 7)):
        user = {"role": "user", "content": random.choice(TEXTS) + "1"}
        answer = {"role": "assistant", "content": random.choice(TEXTS) + "2"}
        rule, row = random.choice(
            (
                *[("", [user, answer])] * 4,
                ("null", [user, {**answer, "content": None}]),
                ("missing", [{**user, "role": None}, answer]),
                ("blank", [{**user, "content": "\u200b"}, answer]),
                ("unknown-role", [{**user, "role": "human"}, answer]),
                ("last-not-assistant", [user, answer, user]),
                ("empty", []),
                ("null", None),
                ("wrong-type", [user, None]),
            )
        )
        rows.append(row)
        if rule:
            case.bad[line] = rule
        else:
            case.kept[line] = row
    sink = pa.BufferOutputStream()
    group = pa.array(range(len(rows)))
    pq.write_table(pa.table({"group": group, "messages": pa.array(rows, MESSAGES)}), sink)
    case.data = sink.getvalue().to_pybytes()
    return case


def _columns(rows: list[dict], kind: pa.DataType) -> dict[str, pa.Array]:
    return {
        "instruction": pa.array([row["instruction"] for row in rows]).cast(kind),
        "output": pa.array([row["output"] for row in rows], pa.string()),
        "raw": pa.array([row["raw"] for row in rows]),
    }
