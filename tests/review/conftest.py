"""Two revisions of this project as folders, and the setting that a test changes."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from hashtune.lineage.lock import lookup
from hashtune.review.compare import compare
from hashtune.review.page import Review, markdown
from hashtune.review.revisions import Span

TRACKED = ("conf", "data/triage", "data/suites", "data/replay", "reports")
FILES = ("dvc.yaml", "params.yaml", "requirements.lock", "dvc.lock")
SPAN = Span("a" * 40, "b" * 40)


@dataclass
class Two:
    """The folders of base and head; `review` compares them."""

    base: Path
    head: Path

    def review(self) -> Review:
        return compare(SPAN, self.base, self.head)

    def page(self) -> str:
        return markdown(self.review())

    @staticmethod
    def params(folder: Path) -> dict[str, Any]:
        text = (folder / "params.yaml").read_text(encoding="utf-8")
        return dict(OmegaConf.to_container(OmegaConf.create(text)))

    def set(self, values: Mapping[str, Any]) -> None:
        """Change dotted keys in the head's params.yaml."""
        params = self.params(self.head)
        for dotted, value in values.items():
            *path, last = dotted.split(".")
            section = params
            for part in path:
                section = section[int(part)] if isinstance(section, list) else section[part]
            section[last] = value
        OmegaConf.save(OmegaConf.create(params), self.head / "params.yaml")


@pytest.fixture(scope="session")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a revision of this project tracks, src/ but for the code that no review reads."""
    folder = tmp_path_factory.mktemp("tree")
    for name in TRACKED:
        shutil.copytree(root / name, folder / name)
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(root / name, folder / name)
    bring_up_to_date(folder)
    return folder


def bring_up_to_date(folder: Path) -> None:
    """dvc.lock as if this very state had run, so that no test hangs on when the demo last did."""
    lock = OmegaConf.to_container(OmegaConf.load(folder / "dvc.lock"))
    params = OmegaConf.to_container(OmegaConf.load(folder / "params.yaml"))
    for stage in lock["stages"].values():
        recorded = stage.get("params", {}).get("params.yaml", {})
        recorded.update({key: lookup(params, key) for key in recorded})
        for entry in [*stage.get("deps", ()), *stage.get("outs", ())]:
            file = folder / entry["path"]
            if file.is_file():
                entry["md5"] = md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    text = yaml.dump(lock, Dumper=yaml.CSafeDumper, sort_keys=False)
    (folder / "dvc.lock").write_text(text, encoding="utf-8")


@pytest.fixture
def two(tree: Path, tmp_path: Path) -> Two:
    """The same revision twice."""
    make: Callable[[str], Path] = lambda name: shutil.copytree(tree, tmp_path / name)  # noqa: E731
    return Two(make("base"), make("head"))
