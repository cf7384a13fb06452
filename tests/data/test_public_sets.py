"""Two public data sets, read in place, load with five lines of conf over the demo's source."""

from pathlib import Path

import pytest
import yaml

from hashtune.data.cleaning import Policy
from hashtune.data.sources import DataFile, Loaded, load
from hashtune.spec.rows import field_faults
from hashtune.spec.schema import Source

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "datasets"
BANKING77 = """
uri: banking77_train.csv
sha256: b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b
format: csv
schema: instruction
fields: {instruction: text, output: category}
"""
GSM8K = """
uri: gsm8k_train.jsonl
sha256: 17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465
format: jsonl
schema: instruction
fields: {instruction: question, output: answer}
"""


def load_source(root: Path, lines: str) -> Loaded:
    if not FOLDER.is_dir():
        pytest.skip("../shared is absent")
    demo = yaml.safe_load((root / "conf/data/triage.yaml").read_text(encoding="utf-8"))
    source = Source.model_validate(demo["sources"][0] | yaml.safe_load(lines))
    assert list(field_faults(source.schema_, source.fields)) == []
    file = DataFile(
        source.name,
        source.uri,
        source.sha256,
        source.schema_,
        "data.sources[0]",
        format=source.format,
        fields=source.fields,
    )
    return load(file, FOLDER, Policy("error", 0.0))


def test_banking77_loads_with_its_quoted_line_ends(root):
    loaded = load_source(root, BANKING77)
    assert (loaded.findings, loaded.dropped, loaded.notes, loaded.extra) == ([], [], [], {})
    assert (loaded.rows, len(loaded.conversations)) == (10_003, 10_003)
    assert loaded.conversations[0].messages == [
        {"role": "user", "content": "I am still waiting on my card?"},
        {"role": "assistant", "content": "card_arrival"},
    ]
    [broken_up] = [row for row in loaded.conversations if row.line == 1292]
    text = "\nI can't seem to be able to use my card\n\n\n"
    assert broken_up.messages[0]["content"] == text
    assert len({row.messages[1]["content"] for row in loaded.conversations}) == 77
    assert sum("\n" in row.messages[0]["content"] for row in loaded.conversations) == 10
    assert loaded.conversations[-1].line == 10_004 + sum(
        row.messages[0]["content"].count("\n") for row in loaded.conversations
    )


def test_gsm8k_loads_with_its_calculator_marks(root):
    loaded = load_source(root, GSM8K)
    assert (loaded.findings, loaded.dropped, loaded.notes, loaded.extra) == ([], [], [], {})
    assert (loaded.rows, len(loaded.conversations)) == (7_473, 7_473)
    answer = loaded.conversations[0].messages[1]["content"]
    assert answer.startswith("Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n")
    assert answer.endswith("\n#### 72")
    assert loaded.conversations[-1].line == 7_473
