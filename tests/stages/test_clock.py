"""The clock decides nothing: neither a token, nor what DVC hashes of tokenize."""

import datetime
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import records, writers
from hashtune.spec.load import read_params
from hashtune.stages import tokenize
from hashtune.store.loader import load_tokenizer, resolve
from hashtune.store.manifest import Manifest, Source, manifest_json
from hashtune.store.synthetic import CHAT_TEMPLATE

TALK = [{"role": "user", "content": "What is ice?"}, {"role": "assistant", "content": "Water."}]
DATED = (
    "{{- '<|im_start|>system\\n' + strftime_now('%Y-%m-%d') + ' ' + date_string }}"
    "{{- '<|im_end|>\\n' }}" + CHAT_TEMPLATE
)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HASHTUNE_PROCESSES", "1")
    monkeypatch.chdir(tmp_path)
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    manifest = resolve(source, name="tiny", say=lambda text: None)
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
    writers.write_text(Path("dated.jinja"), DATED)
    fields = {"source": "toy", "line": 1, "group": None}
    row = {"id": "a", **fields, "messages": writers.canonical_json(TALK, indent=None)}
    for name in ("train", "eval"):
        path = Path(f"build/prepare/{name}.parquet")
        writers.write_parquet(path, [row], records.conversation_schema())
    return manifest


def tokenized(root: Path, date: str) -> dict[str, Any]:
    """What DVC hashes of the stage, after a run: params, deps and outs."""
    params = read_params(root / "params.yaml")
    pin = writers.sha256_bytes(DATED.encode())
    params["tokenizer"] |= {"chat_template": "dated.jinja", "sha256": pin, "date": date}
    params["data"]["max_seq_len"] = 96
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    tokenize.run()
    stage = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]["tokenize"]
    assert "tokenizer.date" in stage["params"]
    listed = [*stage["deps"], *stage["outs"], *stage["metrics"]]
    paths = [next(iter(item)) if isinstance(item, dict) else item for item in listed]
    hashed = {path: writers.sha256_file(Path(path)) for path in paths if Path(path).is_file()}
    outs = [path for path in paths if path not in stage["deps"]]
    assert set(outs) < set(hashed)
    return {"params": Path("params.yaml").read_text(encoding="utf-8"), **hashed}


def test_c04_two_days_give_the_same_stage_hash(
    base: Manifest, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.utils import chat_template_utils

    tokenizer = load_tokenizer(base)
    unpinned, found = [], []
    for day in (29, 30):
        clock = type("Clock", (), {"now": staticmethod(lambda d=day: datetime.date(2026, 11, d))})
        monkeypatch.setattr(chat_template_utils, "datetime", clock)
        unpinned.append(
            tokenizer.apply_chat_template(
                TALK, chat_template=DATED, tokenize=False, date_string="x"
            )
        )
        found.append(tokenized(root, "2026-01-01"))
    assert ["2026-11-29" in unpinned[0], "2026-11-30" in unpinned[1]] == [True, True]
    assert found[0] == found[1]
    (row,) = writers.read_parquet(Path("build/tokenize/train.parquet"))
    assert "system\n2026-01-01 01 Jan 2026<|im_end|>" in tokenizer.decode(row["input_ids"])
    assert writers.read_json(Path("reports/tokenize.json"))["date"] == "2026-01-01"
    other = tokenized(root, "2026-01-02")  # the pinned date decides, and is a param
    assert other["build/tokenize/train.parquet"] != found[0]["build/tokenize/train.parquet"]


def test_c04_no_setting_is_taken_from_the_clock(root: Path) -> None:
    """Hydra's resolver of the time would give each composition other params."""
    files = sorted((root / "conf").rglob("*.yaml"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in [*files, root / "dvc.yaml"]}
    assert [name for name, text in texts.items() if "${now" in text] == []
    assert len(files) > 10
