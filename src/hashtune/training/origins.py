"""Source lines of examples, for messages only: no output may depend on what is read here.

prepare's file is no dependency of train, since a line that moved must not retrain.
"""

from collections.abc import Collection
from pathlib import Path

from hashtune.inspection.lines import lines_of
from hashtune.writers import parquet_chunks

CHUNK_ROWS = 1024


def source_lines(ids: Collection[str], *, prepared: Path) -> dict[str, str]:
    """Map the example ids found in `prepared` to "source:line"; without the file, none is."""
    if not prepared.is_file():
        return {}
    rows = (row for chunk in parquet_chunks(prepared, CHUNK_ROWS) for row in chunk)
    places = lines_of(ids, rows)
    return {example: f"{source}:{line}" for example, (source, line) in places.items()}
