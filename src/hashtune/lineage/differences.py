"""The first difference between two outputs: which file, which tensor, row, key or step.

Files are compared by content whatever wrote them, so two outputs are equal exactly when their
bytes are; the words only say where to look.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hashtune.writers import sha256_file


def first_difference(recorded: Path, rebuilt: Path) -> str | None:
    """Where two files or folders first differ, or None when all their bytes are equal.

    Files of a folder come in name order.
    """
    ours, theirs = _files(recorded), _files(rebuilt)
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            return f"{name} was recorded and is not there"
        if name not in ours:
            return f"{name} is there and was not recorded"
        if sha256_file(ours[name]) != sha256_file(theirs[name]):
            return f"{name}: {_inside(ours[name], theirs[name])}"
    return None


def first_step(recorded: Path, rebuilt: Path, *, last: int | None = None) -> int | None:
    """The first training step at which a curve of these folders has another value, or None.

    Args:
        recorded: folder of curves, `**/*.tsv` with the columns step and one metric.
        rebuilt: the same of the other run.
        last: compare steps up to this one only.
    """
    ours, theirs = _curves(recorded), _curves(rebuilt)
    limit = float("inf") if last is None else last
    points = sorted(point for point in {*ours, *theirs} if point[0] <= limit)
    return next((point[0] for point in points if ours.get(point) != theirs.get(point)), None)


def _curves(folder: Path) -> dict[tuple[int, str], str]:
    """(step, curve) to the value as it is written."""
    points = {}
    for file in sorted(folder.rglob("*.tsv")):
        with file.open(encoding="utf-8", newline="") as handle:
            header, *rows = csv.reader(handle, delimiter="\t")
        step = header.index("step")
        for row in rows:
            values = [value for place, value in enumerate(row) if place != step]
            points[int(row[step]), file.relative_to(folder).as_posix()] = "\t".join(values)
    return points


def _files(path: Path) -> dict[str, Path]:
    if path.is_dir():
        return {p.relative_to(path).as_posix(): p for p in path.rglob("*") if p.is_file()}
    return {path.name: path} if path.is_file() else {}


def _inside(recorded: Path, rebuilt: Path) -> str:
    """Words for two files that differ."""
    readers = {
        ".safetensors": _tensors,
        ".parquet": _rows,
        ".json": _json,
        ".jsonl": _lines,
        ".tsv": _lines,
    }
    reader = readers.get(recorded.suffix)
    return (reader(recorded, rebuilt) if reader else None) or _bytes(recorded, rebuilt)


def _tensors(recorded: Path, rebuilt: Path) -> str | None:
    from safetensors import safe_open

    with safe_open(recorded, framework="pt") as ours, safe_open(rebuilt, framework="pt") as theirs:
        names = sorted({*ours.keys(), *theirs.keys()})
        for name in names:
            if name not in ours.keys() or name not in theirs.keys():  # noqa: SIM118  no mapping
                return f"tensor {name} is in one of the two only"
            a, b = ours.get_tensor(name), theirs.get_tensor(name)
            if a.dtype != b.dtype or a.shape != b.shape:
                return f"tensor {name} is {_kind(a)}, recorded as {_kind(b)}"
            if not a.equal(b):
                far = (a.double() - b.double()).abs()
                return (
                    f"tensor {name}: {int((a != b).sum())} of {a.numel()} values differ, "
                    f"by at most {float(far.max()):.3g}"
                )
    return None


def _kind(tensor: Any) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _rows(recorded: Path, rebuilt: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        ours, theirs = pq.ParquetFile(recorded), pq.ParquetFile(rebuilt)
    except pa.ArrowInvalid:
        return None
    if ours.schema_arrow != theirs.schema_arrow:
        return "has other columns"
    for number, (a, b) in enumerate(zip(_each(ours), _each(theirs), strict=False)):
        for column in a:
            if a[column] != b[column]:
                return f"row {number}, column {column}: {_both(a[column], b[column])}"
    counts = ours.metadata.num_rows, theirs.metadata.num_rows
    return f"has {counts[1]} rows, recorded with {counts[0]}" if counts[0] != counts[1] else None


def _each(file: Any) -> Iterator[dict[str, Any]]:
    for batch in file.iter_batches(1024):
        yield from batch.to_pylist()


def _json(recorded: Path, rebuilt: Path) -> str | None:
    try:
        ours, theirs = (json.loads(p.read_text(encoding="utf-8")) for p in (recorded, rebuilt))
    except ValueError:
        return None
    return _key(ours, theirs, "")


def _key(ours: Any, theirs: Any, path: str) -> str | None:
    """The first key, in the order of the file, whose values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in ours or key not in theirs:
                return f"{inner} is in one of the two only"
            if found := _key(ours[key], theirs[key], inner):
                return found
        return None
    return None if ours == theirs else f"{path or 'value'}: {_both(ours, theirs)}"


def _lines(recorded: Path, rebuilt: Path) -> str | None:
    ours, theirs = (p.read_bytes().split(b"\n") for p in (recorded, rebuilt))
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), start=1):
        if a != b:
            return f"line {number}: {_both(a.decode(errors='replace'), b.decode(errors='replace'))}"
    return f"has {len(theirs) - 1} lines, recorded with {len(ours) - 1}"


def _bytes(recorded: Path, rebuilt: Path) -> str:
    ours, theirs = recorded.read_bytes(), rebuilt.read_bytes()
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    return f"byte {place} differs ({len(theirs)} bytes, recorded with {len(ours)})"


def _both(recorded: object, rebuilt: object) -> str:
    return f"{_short(rebuilt)}, recorded as {_short(recorded)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
