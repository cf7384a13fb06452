"""What a released folder holds: the tokenizer of any base, and the template of training only."""

import pytest

from hashtune.errors import InputError
from hashtune.stages.release import _template, tokenizer_files
from hashtune.store.manifest import FileEntry, Manifest
from hashtune.writers import sha256_bytes

TEXT = "{{ messages }}"


def test_every_tokenizer_file_and_no_weights():
    names = [
        *("config.json", "generation_config.json", "model-00001.safetensors", "merges.txt"),
        *("model.safetensors.index.json", "tokenizer.model", "tokenizer_config.json"),
    ]
    source = {"kind": "path", "repo": "x", "revision": "", "file": None, "sha256": None}
    files = {name: FileEntry(1, "0" * 64) for name in names}
    manifest = Manifest("tiny", source, files, {}, "")
    assert tokenizer_files(manifest) == ["merges.txt", "tokenizer.model", "tokenizer_config.json"]


def test_template_from_the_tokenizer_config_is_found(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    pinned = {"chat_template": "base", "sha256": sha256_bytes(TEXT.encode())}
    assert _template(tmp_path, pinned) == TEXT


def test_c26_another_template_than_the_pinned_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jinja").write_text(TEXT + "!")
    pinned = {"chat_template": "mine.jinja", "sha256": sha256_bytes(TEXT.encode())}
    with pytest.raises(InputError, match="pin-differs"):
        _template(tmp_path, pinned)
