"""The wheel source: pinned before it is opened, one member, no second download, pip's own words."""

import zipfile
from pathlib import Path

import pytest

from hashtune.errors import InputError
from hashtune.store import wheel
from hashtune.store.manifest import Source, used_files
from hashtune.store.synthetic import build_synthetic
from hashtune.writers import sha256_file

MEMBER = "tiny_base/tiny.gguf"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A real, installable wheel with a fake GGUF file inside."""
    path = tmp_path / "index" / "tiny_base-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, b"GGUF of nothing")
        archive.writestr("../outside.gguf", b"climbs")
        archive.writestr(
            "tiny_base-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-base\nVersion: 1.0\n",
        )
        archive.writestr(
            "tiny_base-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_base-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replace the conversion by the synthetic base; records what it was given."""
    seen: list[bytes] = []

    def convert(gguf: Path, directory: Path) -> None:
        seen.append(gguf.read_bytes())
        build_synthetic(directory, seed=0)

    monkeypatch.setattr(wheel, "convert", convert)
    return seen


def offline_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def source(pin: str | None, *, revision: str = "1.0", file: str | None = MEMBER) -> Source:
    return Source(kind="wheel", repo="tiny-base", revision=revision, file=file, sha256=pin)


def fetch(given: Source, tmp_path: Path) -> list[str]:
    said: list[str] = []
    directory = tmp_path / "out"
    directory.mkdir(exist_ok=True)
    wheel.fetch_wheel(given, directory, keep=tmp_path / "keep", say=said.append)
    return said


def test_pip_brings_the_wheel_once(
    packed: Path, converted: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin, size = sha256_file(packed), packed.stat().st_size
    offline_index(monkeypatch, packed.parent)
    said = fetch(source(pin), tmp_path)
    assert said == [
        "  downloads the wheel tiny-base==1.0 with pip",
        f"  got tiny_base-1.0-py3-none-any.whl, {size:,} bytes",
        "  converts tiny.gguf, 15 bytes, to bf16 safetensors",
    ]
    assert [path.name for path in (tmp_path / "keep").iterdir()] == [pin]
    assert "model.safetensors" in used_files(tmp_path / "out")
    packed.unlink()  # the index is gone, the store still has it
    assert fetch(source(pin), tmp_path) == said[2:]
    assert converted == [b"GGUF of nothing"] * 2


def test_pip_failure_is_told_in_its_words_with_the_way_out(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline_index(monkeypatch, packed.parent)
    with pytest.raises(InputError) as error:
        fetch(source("0" * 64, revision="2.0"), tmp_path)
    (finding,) = error.value.findings
    assert finding.rule == "wheel-download"
    assert "No matching distribution found for tiny-base==2.0" in finding.message
    assert str(tmp_path / "keep" / ("0" * 64)) in str(finding.fix)


def test_another_wheel_is_refused_before_it_is_opened(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("the wheel was opened")

    monkeypatch.setattr(wheel, "pip_download", lambda *_, **__: packed)
    monkeypatch.setattr(wheel, "extract", opened)
    with pytest.raises(InputError) as error:
        fetch(source("0" * 64), tmp_path)
    (finding,) = error.value.findings
    assert finding.rule == "wheel-differs"
    assert sha256_file(packed) in finding.message and "0" * 64 in finding.message
    assert list((tmp_path / "keep").iterdir()) == []


def test_a_wheel_changed_in_the_store_is_refused(packed: Path, tmp_path: Path) -> None:
    pin = sha256_file(packed)
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / pin).write_bytes(packed.read_bytes() + b"!")
    with pytest.raises(InputError, match=f"delete .*{pin}"):
        fetch(source(pin), tmp_path)


@pytest.mark.parametrize(
    "member", ["../outside.gguf", "/etc/x.gguf", "a/../../x.gguf", "a\\..\\x.gguf"]
)
def test_a_member_that_climbs_is_refused(packed: Path, tmp_path: Path, member: str) -> None:
    scratch = tmp_path / "a" / "b"
    scratch.mkdir(parents=True)
    with pytest.raises(InputError, match="zip-path"):
        wheel.extract(packed, member, scratch)
    assert not list(tmp_path.rglob("*.gguf"))


def test_only_the_named_member_is_extracted(packed: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert wheel.extract(packed, MEMBER, scratch) == scratch / "tiny.gguf"
    assert [path.name for path in scratch.iterdir()] == ["tiny.gguf"]


def test_a_wrong_member_or_no_zip_is_a_finding(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"did you mean 'tiny_base/tiny\.gguf'"):
        wheel.extract(packed, "tiny_base/tinny.gguf", tmp_path)
    (tmp_path / "text.whl").write_text("no zip")
    with pytest.raises(InputError, match="no-zip"):
        wheel.extract(tmp_path / "text.whl", MEMBER, tmp_path)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (source(None), "base_model.sha256"),
        (source("0" * 64, file=None), "base_model.file"),
        (source("0" * 64, file="x/model.bin"), "base_model.file"),
    ],
)
def test_pin_and_file_are_needed(given: Source, field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        fetch(given, tmp_path)
    assert [finding.field for finding in error.value.findings] == [field]


def test_how_a_tokenizer_was_loaded_does_not_change_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer, tokenization_utils_base

    build_synthetic(tmp_path, seed=0)
    saved, as_transformers_does = [], []
    for name, is_offline_mode in (("on", lambda: False), ("off", lambda: True)):
        monkeypatch.setattr(tokenization_utils_base, "is_offline_mode", is_offline_mode)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path / f"{name}_as_is")
        as_transformers_does.append((tmp_path / f"{name}_as_is/tokenizer_config.json").read_bytes())
        wheel.save_tokenizer(tokenizer, tmp_path / name)
        saved.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert saved[0] == saved[1]
    assert {"tokenizer.json", "tokenizer_config.json"} <= saved[0].keys()
    assert as_transformers_does[0] != as_transformers_does[1]  # the fault this guards against
