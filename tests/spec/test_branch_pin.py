"""The state to branch from: place and hashes, each fault by name; no torch."""

from pathlib import Path
from typing import Any

import pytest

from hashtune import writers
from hashtune.errors import InputError
from hashtune.spec.branch import FILES, branch_findings, branch_step
from hashtune.spec.schema import BranchFrom

FIELD = "schedule.branch_from"
FILE = {"size": 1, "sha256": writers.sha256_bytes(b"x")}
MANIFEST: dict[str, Any] = {"step": 4, "files": dict.fromkeys(FILES, FILE)}


def write(folder: Path, manifest: object = MANIFEST) -> str:
    for name in FILES:
        writers.write_bytes(folder / name, b"x")
    writers.write_json(folder / "manifest.json", manifest)
    return writers.sha256_file(folder / "manifest.json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "project/data/stable")
    write(tmp_path / "outside")
    return tmp_path / "project"


def found(root: Path, path: str = "data/stable", manifest: object = MANIFEST) -> list[Any]:
    sha256 = writers.sha256_bytes(writers.canonical_json(manifest).encode())
    pin = BranchFrom(path=path, sha256=sha256)
    return [(finding.rule, finding.field) for finding in branch_findings(pin, root)]


def test_a_whole_folder_gives_its_step(root: Path) -> None:
    assert found(root) == []
    sha256 = writers.sha256_file(root / "data/stable/manifest.json")
    assert branch_step(BranchFrom(path="data/stable", sha256=sha256), root) == 4
    assert branch_step(None, root) == 0


@pytest.mark.parametrize("path", ["../outside", "data/../../outside", "/etc", "link"])
def test_a_path_that_leaves_the_project(path: str, root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    assert found(root, path) == [("outside-root", FIELD)]


def test_a_file_behind_a_link_leaves_it_too(root: Path) -> None:
    (root / "data/stable/state.json").unlink()
    (root / "data/stable/state.json").symlink_to(root.parent / "outside/state.json")
    assert found(root) == [("outside-root", FIELD)]


def test_other_places(root: Path) -> None:
    assert found(root, "https://me:word@x/stable") == [("outside-root", FIELD)]
    assert found(root, "data/none") == [("no-file", FIELD)]
    assert found(root, "a\0b") == [("no-file", FIELD)]
    write(root / "build/train/stable")
    assert found(root, "build/train/stable") == [("branch", FIELD)]
    assert found(root, "data/../build/train/stable") == [("branch", FIELD)]
    (root / "data/stable/state.json").unlink()
    assert found(root) == [("no-file", FIELD)]


def test_another_hash_names_both(root: Path) -> None:
    with pytest.raises(InputError) as caught:
        branch_step(BranchFrom(path="data/stable", sha256="0" * 64), root)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("pin-differs", f"{FIELD}.sha256")
    assert writers.sha256_file(root / "data/stable/manifest.json") in finding.message
    assert "0" * 64 in finding.message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("data", [b"y", b"xx"])
def test_a_file_that_is_not_the_manifests(name: str, data: bytes, root: Path) -> None:
    (root / "data/stable" / name).write_bytes(data)
    assert found(root) == [("pin-differs", FIELD)]


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {"step": None, "files": {}},
        MANIFEST | {"step": 0},
        MANIFEST | {"step": True},
        MANIFEST | {"more": 1},
        MANIFEST | {"files": {**MANIFEST["files"], "../x": FILE}},
        MANIFEST | {"files": {"state.json": FILE}},
        MANIFEST | {"files": {name: {"size": 1} for name in FILES}},
    ],
)
def test_a_manifest_that_names_no_state(manifest: object, root: Path) -> None:
    write(root / "data/stable", manifest)
    assert found(root, manifest=manifest) == [("branch", FIELD)]
