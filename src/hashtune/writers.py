"""Atomic, canonical writers: same data, same bytes, and never half a file.

A file appears under its name only when all its bytes are on disk (temporary file beside it,
fsync, rename). JSON has sorted keys and no NaN; Parquet goes through pyarrow with fixed settings.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import folders

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 1 << 20
STREAM_ROWS = 4096  # a row group of stream_parquet
staged_directory = folders.staged_directory
PARQUET: dict[str, Any] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
}


def sha256_bytes(data: bytes) -> str:
    """Hex sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in chunks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def canonical_json(value: object, *, indent: int | None = 2) -> str:
    """JSON with sorted keys, raw Unicode and a final newline; ValueError on NaN or infinity."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(
        value,
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
        indent=indent,
        separators=separators,
    )
    return text + "\n"


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically and durably; makes the parent folder."""
    folders.make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folders.fsync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, newlines as given."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write canonical, indented JSON atomically."""
    write_text(path, canonical_json(value))


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write one compact canonical JSON object per line, atomically."""
    write_text(path, "".join(canonical_json(row, indent=None) for row in rows))


def stream_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write the bytes of write_jsonl, one row in memory at a time; not atomic.

    For use inside staged_directory.
    """
    with path.open("w", encoding="utf-8", newline="\n") as sink:
        sink.writelines(canonical_json(row, indent=None) for row in rows)


def read_json(path: Path) -> Any:
    """Parse a JSON file of our own."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Parse a JSON-lines file of our own (split at \\n only: texts may hold U+2028)."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def write_parquet(path: Path, rows: Sequence[Mapping[str, object]], schema: "pa.Schema") -> None:
    """Write rows as one Parquet file with fixed settings, so equal rows give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=65536, **PARQUET)
    write_bytes(path, sink.getvalue().to_pybytes())


def stream_parquet(path: Path, tables: Iterable["pa.Table"], schema: "pa.Schema") -> None:
    """Write tables one after another, STREAM_ROWS in memory at a time; not atomic.

    The bytes depend on the rows alone, not on how the tables cut them; up to STREAM_ROWS rows are
    the bytes of write_parquet. For use inside staged_directory.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_memory_pool(pa.system_memory_pool())  # the default one keeps what is freed, by chance
    with pq.ParquetWriter(path, schema, **PARQUET) as sink:
        waiting, written = schema.empty_table(), False
        for table in tables:
            waiting = pa.concat_tables([waiting, table])
            while waiting.num_rows >= STREAM_ROWS:
                sink.write_table(waiting.slice(0, STREAM_ROWS).combine_chunks())
                waiting, written = waiting.slice(STREAM_ROWS), True
        if waiting.num_rows or not written:
            sink.write_table(waiting.combine_chunks())


def parquet_chunks(path: Path, size: int) -> Iterator[list[dict[str, Any]]]:
    """The rows of a Parquet file as dicts, in file order, `size` at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, buffer_size=CHUNK_BYTES, pre_buffer=False) as file:
        for batch in file.iter_batches(size):
            yield batch.to_pylist()


def parquet_rows(path: Path) -> int:
    """The number of rows of a Parquet file."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """All rows of a Parquet file as dicts, in file order."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return rows
