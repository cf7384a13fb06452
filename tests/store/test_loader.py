"""The store: content-addressed, verified, refetched, safe for two at once."""

import dataclasses
import json
import os
import threading
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.errors import InputError
from hashtune.store import loader, wheel
from hashtune.store.manifest import FileEntry, Manifest, Source, check_files
from hashtune.store.synthetic import build_synthetic
from hashtune.writers import sha256_bytes

SOURCE = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    return loader.home()


@pytest.fixture
def base(home: Path) -> Manifest:
    return loader.resolve(SOURCE, name="tiny")


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts how often a source was asked."""
    seen: list[str] = []
    real = loader.fetch

    def counting(source: Source, directory: Path, **options: object) -> None:
        seen.append(source["kind"])
        real(source, directory, **options)

    monkeypatch.setattr(loader, "fetch", counting)
    return seen


def blob(home: Path, manifest: Manifest, name: str) -> Path:
    return home / "blobs" / manifest.files[name].sha256


def test_home_follows_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.name == "home"
    monkeypatch.delenv("HASHTUNE_HOME")
    assert loader.home() == Path.home() / ".cache/hashtune"


def test_resolve_fills_the_store(home: Path, base: Manifest, fetches: list[str]) -> None:
    directory = loader.materialise(base)
    assert directory == home / "bases" / base.key
    assert check_files(base, directory) == []
    assert sorted(path.name for path in (home / "blobs").iterdir()) == sorted(
        entry.sha256 for entry in base.files.values()
    )
    assert fetches == [] and list((home / "tmp").iterdir()) == []


def test_the_store_can_be_moved(
    home: Path, base: Manifest, fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = home.rename(home.with_name("moved"))
    monkeypatch.setenv("HASHTUNE_HOME", str(moved))
    assert check_files(base, loader.materialise(base)) == []
    assert fetches == []


def test_a_deleted_blob_is_fetched_again(home: Path, base: Manifest, fetches: list[str]) -> None:
    blob(home, base, "model.safetensors").unlink()
    said: list[str] = []
    assert check_files(base, loader.materialise(base, say=said.append)) == []
    assert fetches == ["synthetic"]
    assert said == [f"  fetches tiny, {base.bytes:,} bytes: the store lacks part of it"]


def test_a_tampered_blob_is_refused_and_deleting_it_heals(home: Path, base: Manifest) -> None:
    path = blob(home, base, "model.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    for load in (loader.materialise, lambda manifest: loader.load_base(manifest, dtype="fp32")):
        with pytest.raises(InputError) as error:
            load(base)
        (finding,) = error.value.findings
        assert finding.rule == "store-differs" and finding.file == str(path)
    path.unlink()
    assert check_files(base, loader.materialise(base)) == []


def test_a_stray_file_in_the_directory_is_removed(base: Manifest) -> None:
    directory = loader.materialise(base)
    (directory / "adapter_config.json").write_text("{}")
    (directory / "config.json").unlink()
    assert sorted(path.name for path in loader.materialise(base).iterdir()) == sorted(base.files)


def test_a_source_that_gives_something_else_is_refused(home: Path, base: Manifest) -> None:
    other = Source(**{**SOURCE, "revision": "1"})
    blob(home, base, "model.safetensors").unlink()
    with pytest.raises(InputError) as error:
        loader.materialise(dataclasses.replace(base, source=other))
    (finding,) = error.value.findings
    assert finding.file == "model.safetensors"
    assert "no longer gives what the manifest recorded" in finding.message
    assert not blob(home, base, "model.safetensors").exists()
    assert list((home / "tmp").iterdir()) == []


def test_two_at_once_fetch_once(home: Path, base: Manifest, fetches: list[str]) -> None:
    blob(home, base, "tokenizer.json").unlink()
    start, results = threading.Barrier(2), []

    def work() -> None:
        start.wait()
        results.append(loader.materialise(base, say=lambda _: None))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [home / "bases" / base.key] * 2
    assert fetches == ["synthetic"]
    assert check_files(base, results[0]) == []


def test_two_resolve_at_once(home: Path) -> None:
    results: list[Manifest] = []

    def work() -> None:
        results.append(loader.resolve(SOURCE, name="tiny", say=lambda _: None))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1]
    assert check_files(results[0], loader.materialise(results[0])) == []


def test_a_wheel_is_converted_once(
    home: Path, fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(
        kind="wheel", repo="w", revision="1", file="w/a.gguf", sha256=sha256_bytes(b"wheel")
    )
    (home / "blobs").mkdir(parents=True)
    (home / "blobs" / sha256_bytes(b"wheel")).write_bytes(b"wheel")
    monkeypatch.setattr(wheel, "extract", lambda wheel, member, scratch: wheel)
    monkeypatch.setattr(wheel, "convert", lambda gguf, out: build_synthetic(out, seed=0))
    one = loader.resolve(source, name="one")
    two = loader.resolve(source, name="two")
    assert two == dataclasses.replace(one, name="two")
    assert fetches == ["wheel"]
    blob(home, one, "config.json").unlink()  # the note alone is not enough
    assert loader.resolve(source, name="one") == one
    assert fetches == ["wheel", "wheel"]
    monkeypatch.setattr("hashtune.store.conversions.version", lambda _: "other")
    loader.resolve(source, name="one")
    assert fetches == ["wheel", "wheel", "wheel"]  # another library may convert differently


def test_load_base_and_tokenizer(base: Manifest) -> None:
    import torch

    model = loader.load_base(base, dtype="bf16")
    assert model.dtype == torch.bfloat16 and not model.training
    assert model.config._attn_implementation == "sdpa"
    assert loader.load_base(base, dtype="fp32").dtype == torch.float32
    assert loader.load_tokenizer(base).encode("a") == [67]


def test_weights_that_do_not_cover_the_model_are_refused(home: Path, tmp_path: Path) -> None:
    build_synthetic(tmp_path / "gap", seed=0)
    config = json.loads((tmp_path / "gap/config.json").read_text())
    (tmp_path / "gap/config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    source = Source(kind="path", repo=str(tmp_path / "gap"), revision="", file=None, sha256=None)
    with pytest.raises(InputError) as error:
        loader.resolve(source, name="gap")
    pin = error.value.findings[0].message.split("tree hash ")[1].split(",")[0]
    gap = loader.resolve(Source(**{**source, "sha256": pin}), name="gap")
    with pytest.raises(InputError, match="gap lacks weights for 9 tensors"):
        loader.load_base(gap, dtype="fp32")


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        ({"eos_token_id": [2, 0]}, {"eos_token_id": 7}, [2, 0]),
        ({"eos_token_id": 5}, {}, [5]),
        ({}, {"eos_token_id": 7}, [7]),
        (None, {"eos_token_id": [7, 8]}, [7, 8]),
        (None, {}, []),
    ],
)
def test_eos_ids(
    home: Path, generation: dict[str, object] | None, config: dict[str, object], ids: list[int]
) -> None:
    files = {}
    if generation is not None:
        data = json.dumps(generation).encode()
        (home / "blobs").mkdir(parents=True)
        (home / "blobs" / sha256_bytes(data)).write_bytes(data)
        files["generation_config.json"] = FileEntry(len(data), sha256_bytes(data))
    manifest = Manifest("m", SOURCE, files, config, "")
    assert loader.generation_eos_ids(manifest) == ids


def test_a_base_is_put_where_it_is_asked_for(base: Manifest) -> None:
    """meta stands in for a GPU: torch has it everywhere."""
    import torch

    assert loader.load_base(base, dtype="fp32").device.type == "cpu"
    model = loader.load_base(base, dtype="fp32", device="meta")
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert torch.device("meta") == model.device


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_quantised_base_is_quantised_there(
    device: str, base: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unasked, transformers takes a GPU where there is one, also for a run on the CPU."""
    import transformers

    asked: list[object] = []

    def load(*_: object, **options: object) -> None:
        asked.append(options["device_map"])
        raise InterruptedError

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", load)
    with pytest.raises(InterruptedError):
        loader.load_base(base, dtype="fp32", quantization_config=object(), device=device)
    assert asked == [{"": device}]
