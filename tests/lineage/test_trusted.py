"""Adapters whose weights are right and whose other files are not: refused as changed ones."""

import json

import pytest

from hashtune.lineage.released import seal
from hashtune.lineage.trusted import refusals
from hashtune.writers import sha256_file

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
ENTRY = {"name": "triage", "run": "default", "verdict": "pass", "base": {"source": {"repo": "a"}}}


@pytest.fixture
def root(tmp_path):
    """A project whose gate passed build/train/adapter."""
    folder = tmp_path / "build/train/adapter"
    folder.mkdir(parents=True)
    (folder / WEIGHTS).write_text("w", encoding="utf-8")
    (folder / CONFIG).write_text('{"lora_alpha": 32}', encoding="utf-8")
    files = {f"build/train/adapter/{n}": sha256_file(folder / n) for n in (WEIGHTS, CONFIG)}
    (tmp_path / "build/release").mkdir()
    judged(tmp_path, {"verdict": "pass", "adapter": files})
    return tmp_path


def judged(root, entry):
    (root / "build/release/entry.json").write_text(json.dumps(entry), encoding="utf-8")


def told(root, folder="build/train/adapter", **options):
    found = refusals(root / folder, root, **options)
    return [(finding.rule, finding.file.rpartition("/")[2]) for finding in found]


def test_the_judged_adapter_is_let_pass(root):
    assert told(root) == []


@pytest.mark.parametrize("folder", ["build/train/adapter", "copy"])
@pytest.mark.parametrize("unreleased", [False, True])
def test_another_scale_with_the_judged_weights(root, folder, unreleased):
    """Planted: lora_alpha 9, which gives other answers; chat and step took it."""
    own = root / "build/train/adapter"
    if folder == "copy":
        own.rename(root / "copy")
    (root / folder / CONFIG).write_text('{"lora_alpha": 9}', encoding="utf-8")
    assert told(root, folder, unreleased=unreleased) == [("tampered", CONFIG)]


def test_other_weights_are_another_adapter(root):
    """Nobody has judged it; if it lies where train writes, reports/train.json says whether it is
    that one."""
    (root / "build/train/adapter" / WEIGHTS).write_text("v", encoding="utf-8")
    assert told(root) == []
    (root / "build/release/entry.json").unlink()
    assert told(root) == []


def test_a_rejected_one_is_told_as_that(root):
    entry = json.loads((root / "build/release/entry.json").read_text(encoding="utf-8"))
    judged(root, entry | {"verdict": "fail"})
    assert told(root) == [("rejected", "adapter")]
    assert told(root, unreleased=True) == []


def test_a_released_adapter_without_its_seal(root):
    """Planted: the seal deleted, then any file could be another one."""
    folder = root / "build/release/adapter"
    folder.mkdir()
    (folder / WEIGHTS).write_text("v", encoding="utf-8")
    seal(folder, ENTRY, "e" * 64)
    assert told(root, "build/release/adapter") == []
    (folder / "release.json").unlink()
    assert told(root, "build/release/adapter") == [("tampered", "release.json")]
