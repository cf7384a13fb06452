"""The rows of a data file in its declared format, one by one; nothing is guessed from its name."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hashtune.data.columns import rows_of_parquet
from hashtune.data.json_array import rows_of_array
from hashtune.data.lines import Log, ReadRow
from hashtune.data.readers import rows_of_jsonl
from hashtune.data.tables import rows_of_table
from hashtune.spec.rows import Format


def read_rows(
    path: Path,
    file_format: Format,
    log: Log,
    *,
    needed: Sequence[str],
    used: Collection[str] | None = None,
) -> Iterator[ReadRow]:
    """Sound rows as written; what is wrong goes to the log. `needed`: columns a table must have;
    `used`: those of which a value is read, None for all."""
    if file_format == "jsonl":
        return rows_of_jsonl(path, log)
    if file_format == "json":
        return rows_of_array(path, log)
    if file_format == "parquet":
        return rows_of_parquet(path, log, needed=needed, used=used)
    return rows_of_table(path, log, file_format, needed=needed)
