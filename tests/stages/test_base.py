"""The stage base on the synthetic model: manifest, report, the pinned template."""

import os
from pathlib import Path

import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import writers
from hashtune.errors import InputError
from hashtune.stages import base
from hashtune.store.loader import materialise
from hashtune.store.manifest import check_files, read_manifest
from hashtune.store.synthetic import CHAT_TEMPLATE

PIN = writers.sha256_bytes(CHAT_TEMPLATE.encode())


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_params(*, template: str = "base", sha256: str = PIN) -> None:
    base_model = {
        "name": "tiny",
        "source": "synthetic",
        "repo": "tiny",
        "revision": "0",
        "file": None,
        "sha256": None,
        "init_adapter": None,
    }
    tokenizer = {
        "chat_template": template,
        "sha256": sha256,
        "added_tokens": [],
        "template_kwargs": {},
        "stops": [],
        "date": "2025-01-01",
        "unstable": "error",
        "mismatch": "error",
        "special_in_content": "error",
        "system": "error",
    }
    Path("params.yaml").write_text(
        yaml.safe_dump({"base_model": base_model, "tokenizer": tokenizer})
    )


def test_manifest_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    write_params()
    base.run()
    manifest = read_manifest(base.OUT)
    assert manifest.name == "tiny" and manifest.template_sha256 == PIN
    assert check_files(manifest, materialise(manifest)) == []
    report = writers.read_json(Path("reports/base.json"))
    assert report == {
        "name": "tiny",
        "source": "synthetic:tiny",
        "revision": "0",
        "files": 6,
        "bytes": manifest.bytes,
        "parameters": 106_816,
        "vocabulary": 512,
        "base_sha256": manifest.key,
        "template_sha256": PIN,
    }
    assert "106816" in capsys.readouterr().out


def test_same_spec_same_bytes_and_no_path_of_this_machine(checkout: Path) -> None:
    write_params()
    outputs = (base.OUT, Path("reports/base.json"))
    base.run()
    first = [path.read_bytes() for path in outputs]
    base.run()
    assert [path.read_bytes() for path in outputs] == first
    assert all(str(checkout).encode() not in data for data in first)


def test_another_template_is_refused_and_nothing_written() -> None:
    write_params(sha256="0" * 64)
    with pytest.raises(InputError) as error:
        base.run()
    (finding,) = error.value.findings
    assert finding.field == "tokenizer.sha256"
    assert PIN in finding.message and "0" * 64 in finding.message and PIN in str(finding.fix)
    assert not Path("build").exists() and not Path("reports").exists()


def test_a_template_file_in_git_is_not_compared_with_the_base() -> None:
    write_params(template="templates/own.jinja", sha256="0" * 64)
    base.run()
    assert base.OUT.is_file()


def test_a_base_without_template_says_so() -> None:
    write_params()
    base.run()
    manifest = read_manifest(base.OUT)
    object.__setattr__(manifest, "template_sha256", "")
    with pytest.raises(InputError, match="tiny has no chat template") as caught:
        base.refuse_other_template(manifest, pin=PIN)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("no-template", "tokenizer.chat_template")
    assert "template file in Git" in finding.fix and "added_tokens" in finding.fix
