"""Read Parquet row by row: texts stay texts, and a column that JSON cannot hold is refused.

A timestamp, date, decimal, binary or map column is refused by name where the schema reads it and
left out with a note where it does not; NaN and Infinity in a column that is not read are null.
Parquet cannot tell an absent field of a struct from null: such a null is read as absent, except for
the "content" of a message. Memory: BATCH_ROWS rows.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune.data.lines import (
    FOREIGN_STARTS,
    LONGEST_START,
    MAX_LINE_BYTES,
    Fault,
    Log,
    ReadRow,
    limit_in_words,
)
from hashtune.data.tables import header_faults

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 64
BUFFER_BYTES = 1024 * 1024
MAGIC = b"PAR1"
CONTENT_BESIDE = {"content": "role", "value": "from"}  # what makes a struct a message


def rows_of_parquet(
    path: Path, log: Log, *, needed: Sequence[str], used: Collection[str] | None = None
) -> Iterator[ReadRow]:
    """The sound rows one by one, numbered from 1; findings and notes go to the log. `needed` are
    the columns without which no row can be used, `used` all that the schema reads (None: every
    JSON value, and of other columns the needed ones)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as handle:
        if handle.read(len(MAGIC)) != MAGIC:
            log.add(_no_parquet(path), None)
            return
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            names = _columns(file.schema_arrow, needed, used or (), log)
            if names is None:
                return
            first = 1
            batches = file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
            for batch in batches:
                yield from _rows(_decoded(batch), first, used, log)
                first += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        log.add(Fault("not-parquet", f"Parquet is damaged: {text}", "write the file again"), None)


def _no_parquet(path: Path) -> Fault:
    with path.open("rb") as handle:
        start = handle.read(LONGEST_START)
    found = next(
        (found for magic, found in FOREIGN_STARTS.items() if start.startswith(magic)), None
    )
    if found is None:
        return Fault("not-parquet", "is not Parquet (PAR1 is not its start)")
    name, fix = found
    return Fault("not-parquet", f"is {name}, expected Parquet (PAR1 is not its start)", fix)


def _columns(
    schema: "pa.Schema", needed: Sequence[str], used: Collection[str], log: Log
) -> list[str] | None:
    """Names of the columns to read, or None after a finding."""
    faults = header_faults(schema.names, needed)
    kept = []
    for name, column in zip(schema.names, schema.types, strict=True):
        if is_json_type(column):
            kept.append(name)
        elif name in needed or name in used:
            fix = "write the column as text, the way it shall be trained"
            faults.append(Fault("column-type", f"column {name!r} is {column}, no JSON type", fix))
        else:
            log.notes.append(f"column {name!r} left out: {column} is no JSON type")
    for fault in faults:
        log.add(fault, None)
    return None if faults else kept


def is_json_type(column: "pa.DataType") -> bool:
    """Whether each value of this type is one JSON value and no other."""
    from pyarrow import types

    if types.is_dictionary(column):
        return is_json_type(column.value_type)
    if types.is_struct(column):
        return all(is_json_type(inner.type) for inner in column)
    if types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column):
        return is_json_type(column.value_type)
    text = types.is_string(column) or types.is_large_string(column) or types.is_string_view(column)
    number = types.is_integer(column) or types.is_floating(column)
    return bool(text or number or types.is_boolean(column) or types.is_null(column))


def _decoded(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The batch with the values of a dictionary in its rows: the size of a row is its own."""
    import pyarrow as pa

    kinds = [_without_dictionary(column.type) for column in batch.schema]
    fields = [column.with_type(kind) for column, kind in zip(batch.schema, kinds, strict=True)]
    return batch.cast(pa.schema(fields))


def _without_dictionary(column: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(column):
        return column.value_type
    if types.is_struct(column):
        return pa.struct([inner.with_type(_without_dictionary(inner.type)) for inner in column])
    if types.is_list(column) or types.is_large_list(column):
        whole = pa.list_ if types.is_list(column) else pa.large_list
        inner = column.value_field
        return whole(inner.with_type(_without_dictionary(inner.type)))
    return column


def _rows(
    batch: "pa.RecordBatch", first: int, used: Collection[str] | None, log: Log
) -> Iterator[ReadRow]:
    for index in range(batch.num_rows):
        single = batch.slice(index, 1)
        line = first + index
        if single.nbytes > MAX_LINE_BYTES:
            message = f"row of {single.nbytes:,} bytes, {limit_in_words()}"
            log.add(Fault("line-too-long", message), line)
            continue
        try:
            [row] = single.to_pylist()
        except UnicodeDecodeError as error:
            found = f"byte 0x{error.object[error.start]:02X} in a text is not UTF-8"
            log.add(Fault("not-utf8", found, "write the file again"), line)
            continue
        strange = [name for name, value in row.items() if _not_finite(value)]
        if name := next((name for name in strange if used is None or name in used), None):
            log.add(Fault("not-a-number", "NaN or Infinity is no JSON value"), line, name)
            continue
        row |= dict.fromkeys(strange)
        yield ReadRow(line, {name: _without_nulls(value) for name, value in row.items()})


def _not_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_not_finite(inner) for inner in value.values())
    return isinstance(value, list) and any(_not_finite(inner) for inner in value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_nulls(inner)
        for name, inner in value.items()
        if inner is not None or (CONTENT_BESIDE.get(name) in value)
    }
