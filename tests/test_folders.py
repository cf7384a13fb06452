"""Folders: flushed before their rename, whole or absent, and an old one is not lost."""

import os
from pathlib import Path

import pytest

from hashtune import folders


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was given to fsync or renamed, in order."""
    seen: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def rename(source: Path, target: Path) -> None:
        seen.append(f"-> {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def test_every_file_and_folder_is_flushed_before_the_rename(
    tmp_path: Path, flushed: list[str]
) -> None:
    with folders.staged_directory(tmp_path / "new" / "out") as folder:
        (folder / "inner" / "deep").mkdir(parents=True)
        (folder / "a").write_text("1")
        (folder / "inner" / "deep" / "b").write_text("2")
    assert flushed == [
        tmp_path.name,  # holds "new"
        *("b", "a", "deep", "inner", folder.name),
        "-> out",
        "new",
    ]


def test_an_old_folder_is_moved_aside_not_removed_first(tmp_path: Path, flushed: list[str]) -> None:
    target = tmp_path / "out"
    for text in ("old", "new"):
        flushed.clear()
        with folders.staged_directory(target) as folder:
            (folder / "f").write_text(text)
    renames = [name for name in flushed if name.startswith("->")]
    assert renames == [f"-> {folder.stem}.old.tmp", "-> out"]
    assert (target / "f").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_old_folder_comes_back_when_the_new_one_cannot_take_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    with folders.staged_directory(target) as folder:
        (folder / "f").write_text("old")
    real = os.replace

    def replace(source: Path, name: Path) -> None:
        if Path(name) == target and ".old." not in Path(source).name:
            raise OSError(28, "No space left on device")
        real(source, name)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="No space"), folders.staged_directory(target) as folder:
        (folder / "f").write_text("new")
    assert (target / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_is_renamed_before_it_is_removed(tmp_path: Path, flushed: list[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "f").touch()
    folders.remove_folder(tmp_path / "out")
    assert flushed == ["-> .out.removed.tmp"]
    assert list(tmp_path.iterdir()) == []


def test_made_parents_are_flushed_each_by_its_own_parent(
    tmp_path: Path, flushed: list[str]
) -> None:
    folders.make_folder(tmp_path / "a" / "b")
    assert flushed == [tmp_path.name, "a"]
    folders.make_folder(tmp_path / "a" / "b")
    assert flushed == [tmp_path.name, "a"]


def test_what_a_kill_left_of_the_same_target_is_removed(tmp_path: Path) -> None:
    names = (".out.ab_d1234.tmp", ".out.ab_d1234.old.tmp", ".out.removed.tmp")
    others = (".out.x.ab_d1234.tmp", ".other.ab_d1234.tmp", "out.tmp")
    for name in (*names, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").touch()
    with folders.staged_directory(tmp_path / "out"):
        assert not any((tmp_path / name).exists() for name in names)
    assert {path.name for path in tmp_path.iterdir()} == {"out", *others}
