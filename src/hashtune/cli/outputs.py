"""Outputs of the stages as the commands read them: what is missing or damaged is named."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Data, HeldOut, Source

if TYPE_CHECKING:
    import pyarrow as pa

PREPARE, TOKENIZE, PACK = Path("build/prepare"), Path("build/tokenize"), Path("build/pack")


def missing(files: Sequence[Path], stage: str) -> list[Finding]:
    """One finding about those of the files that are not there; `stage` makes them, or comes after
    all stages that do, so that one command cures it."""
    gone = [str(file) for file in files if not file.is_file()]
    if not gone:
        return []
    text = "is missing" if len(gone) == 1 else "are missing"
    return [Finding("no-output", text, file=", ".join(gone), fix=f"dvc repro {stage}")]


def require(file: Path, stage: str) -> None:
    """Raise InputError when this output of a stage is not there."""
    if findings := missing([file], stage):
        raise InputError(findings)


def read_table(file: Path, stage: str, columns: Sequence[str] = ()) -> "pa.Table":
    """A Parquet output of a stage; InputError when it is missing, damaged or lacks a column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require(file, stage)
    try:
        table = pq.ParquetFile(file).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(_broken(file, stage, error)) from error
    if gone := [name for name in columns if name not in table.column_names]:
        text, fix = f"has no column {', '.join(gone)}", f"delete it, then dvc repro {stage}"
        raise InputError(Finding("broken-output", text, file=str(file), fix=fix))
    return table


def read_where(
    file: Path, stage: str, *, key: str, among: Collection[object], columns: Sequence[str]
) -> list[dict[str, object]]:
    """The rows whose `key` is among these values, these columns only; a row group in memory."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    require(file, stage)
    wanted = pc.field(key).isin(list(among))
    found: list[dict[str, object]] = []
    try:
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                found += parquet.read_row_group(group, columns).filter(wanted).to_pylist()
    except pa.ArrowInvalid as error:
        raise InputError(_broken(file, stage, error)) from error
    return found


def _broken(file: Path, stage: str, error: Exception) -> Finding:
    text = f"is no Parquet file: {' '.join(str(error).split())[:80]}"
    fix = f"delete it, then dvc repro {stage}"
    return Finding("broken-output", text, file=str(file), fix=fix)


def declared(data: Data) -> dict[str, Source | HeldOut]:
    """The data files of the spec by the name that a row's `source` has."""
    files: dict[str, Source | HeldOut] = {"eval": data.eval, "test": data.test}
    return files | {item.name: item for item in data.sources}
