"""The manifest: what is hashed, what is refused, which differences are found."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from hashtune import writers
from hashtune.errors import InputError
from hashtune.store.contents import count_parameters, template_text, vocabulary_size
from hashtune.store.manifest import (
    Manifest,
    Source,
    build_manifest,
    check_files,
    is_used,
    manifest_json,
    read_manifest,
    tree_sha256,
    used_files,
)
from hashtune.store.synthetic import CHAT_TEMPLATE, build_synthetic

SOURCE = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    build_synthetic(directory, seed=0)
    return directory


@pytest.fixture
def base(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "base"))


def manifest_of(directory: Path) -> Manifest:
    return build_manifest(directory, name="tiny", source=SOURCE)


def rules(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return [finding.rule for finding in error.value.findings]


def test_manifest_records_every_used_file_and_survives_json(base: Path, tmp_path: Path) -> None:
    (base / "README.md").write_text("not part of the base")
    manifest = manifest_of(base)
    assert sorted(manifest.files) == used_files(base)
    assert "README.md" not in manifest.files
    assert manifest.config["vocab_size"] == 512
    assert manifest.template_sha256 == writers.sha256_bytes(CHAT_TEMPLATE.encode())
    assert manifest.bytes == sum((base / name).stat().st_size for name in manifest.files)
    writers.write_json(tmp_path / "manifest.json", manifest_json(manifest))
    assert read_manifest(tmp_path / "manifest.json") == manifest


def test_tree_hash_is_the_sorted_list_of_names_and_hashes() -> None:
    assert tree_sha256({"b": "2", "a": "1"}) == writers.sha256_bytes(b"a 1\nb 2\n")
    assert tree_sha256({"a": "2", "b": "1"}) != tree_sha256({"a": "1", "b": "2"})


def test_key_depends_on_content_alone(base: Path) -> None:
    manifest = manifest_of(base)
    assert dataclasses.replace(manifest, name="other").key == manifest.key
    (base / "config.json").write_text((base / "config.json").read_text() + " ")
    assert manifest_of(base).key != manifest.key


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("tokenizer.model", True),
        ("chat_template.jinja", True),
        ("pytorch_model.bin", False),
        ("model.pt", False),
        ("modeling_evil.py", False),
        ("original/params.json", False),
        ("../config.json", False),
        ("adapter_config.json", False),  # transformers would load the adapter on top
        ("adapter_model.safetensors", False),
        ("consolidated.safetensors", False),
    ],
)
def test_what_belongs_to_a_base(name: str, used: bool) -> None:
    assert is_used(name) is used


def test_pickle_weights_are_refused_by_name(base: Path) -> None:
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pickle weights are refused: pytorch_model\.bin"):
        manifest_of(base)


def test_everything_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        manifest_of(tmp_path)
    assert rules(error) == ["no-safetensors", "no-config", "no-tokenizer"]


def test_check_files_finds_each_kind_of_difference(base: Path) -> None:
    manifest = manifest_of(base)
    assert check_files(manifest, base) == []
    weights = bytearray((base / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (base / "model.safetensors").write_bytes(weights)
    (base / "config.json").write_bytes(b"{}")
    (base / "tokenizer.json").unlink()
    (base / "extra.json").write_bytes(b"{}")
    found = [(finding.file, finding.message.split()[0]) for finding in check_files(manifest, base)]
    assert found == [
        ("config.json", "has"),
        ("model.safetensors", "has"),
        ("tokenizer.json", "is"),
        ("extra.json", "is"),
    ]
    assert "2 bytes" in check_files(manifest, base)[0].message
    assert "has sha256" in check_files(manifest, base)[1].message


def test_an_entry_that_would_leave_the_store_is_refused(base: Path, tmp_path: Path) -> None:
    data = manifest_json(manifest_of(base))
    data["files"]["../../x.json"] = data["files"]["config.json"]
    data["files"]["config.json"] = {"size": 1, "sha256": "../../etc/passwd"}
    writers.write_json(tmp_path / "manifest.json", data)
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path / "manifest.json")
    assert [finding.field for finding in error.value.findings] == ["../../x.json", "config.json"]


def test_template_in_tokenizer_config(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    assert template_text(tmp_path) is None
    config.write_text(json.dumps({"chat_template": "one"}))
    assert template_text(tmp_path) == "one"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert template_text(tmp_path) == "d"
    (tmp_path / "chat_template.jinja").write_text("file wins")
    assert template_text(tmp_path) == "file wins"


def test_base_without_template_has_an_empty_hash(base: Path) -> None:
    (base / "chat_template.jinja").unlink()
    assert manifest_of(base).template_sha256 == ""


def test_parameters_come_from_the_headers(base: Path) -> None:
    # 512*64 embedding + 64 norm + 2 layers of (2*64 norms + 64*(64+32+32+64) attention + 3*64*128)
    assert count_parameters([base / "model.safetensors"]) == 32768 + 64 + 2 * (128 + 12288 + 24576)
    (base / "model.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0{oops")
    with pytest.raises(InputError, match="bad-safetensors"):
        count_parameters([base / "model.safetensors"])


def test_vocabulary_of_a_model_with_a_text_part() -> None:
    assert vocabulary_size({"vocab_size": 7}) == 7
    assert vocabulary_size({"text_config": {"vocab_size": 9}}) == 9
    assert vocabulary_size({}) is None


def test_broken_config_names_the_file(base: Path) -> None:
    (base / "config.json").write_text("[1]")
    with pytest.raises(InputError, match=r"config\.json: is no JSON object"):
        manifest_of(base)
