"""Source lines of examples, from what prepare wrote."""

from pathlib import Path

from hashtune.records import conversation_schema
from hashtune.training.origins import source_lines
from hashtune.writers import write_parquet


def prepared(folder: Path) -> Path:
    path = folder / "train.parquet"
    lines = [("0a", "triage", 12), ("0b", "replay", 3), ("0c", "triage", 7)]
    rows = [
        {"id": name, "source": source, "line": line, "group": None, "messages": "[]"}
        for name, source, line in lines
    ]
    write_parquet(path, rows, conversation_schema())
    return path


def test_lines_of_conversations_and_of_their_turns(tmp_path: Path) -> None:
    found = source_lines(["0c", "0a.2", "0a.4", "0d"], prepared=prepared(tmp_path))
    assert found == {"0c": "triage:7", "0a.2": "triage:12", "0a.4": "triage:12"}


def test_without_the_file_nothing_is_known(tmp_path: Path) -> None:
    assert source_lines(["0a"], prepared=tmp_path / "absent.parquet") == {}
