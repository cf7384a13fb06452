"""A project with the repository's conf/ in a Git repository of its own."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """conf/, data/ and .dvc of the repository, tracked by Git; the working directory."""
    for name in ("conf", "data"):
        shutil.copytree(root / name, tmp_path / name)
    (tmp_path / ".dvc").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
