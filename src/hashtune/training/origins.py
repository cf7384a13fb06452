"""Source lines of examples, for messages only: no output may depend on what is read here.

Rows carry example ids. prepare's conversations carry source and line, and an example id begins
with its conversation's; the file is no dependency of train, since a line that moved must not
retrain.
"""

from collections.abc import Collection
from pathlib import Path

from hashtune.writers import parquet_chunks

CHUNK_ROWS = 1024


def source_lines(ids: Collection[str], *, prepared: Path) -> dict[str, str]:
    """Map the example ids found in `prepared` to "source:line"; without the file, none is.

    Ids are <conversation>, or <conversation>.<turn> where a conversation was split.
    """
    if not prepared.is_file():
        return {}
    wanted = {example.partition(".")[0] for example in ids}
    found: dict[str, str] = {}
    for chunk in parquet_chunks(prepared, CHUNK_ROWS):
        found |= {
            row["id"]: f"{row['source']}:{row['line']}" for row in chunk if row["id"] in wanted
        }
    lines = {example: found.get(example.partition(".")[0]) for example in ids}
    return {example: line for example, line in lines.items() if line is not None}
