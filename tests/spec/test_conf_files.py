"""Every file in conf/ composes and loads, and what is written in it is what is loaded."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from hashtune.spec.composition import choices, compose, parse
from hashtune.spec.load import validate

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conf").glob("*/*"))
OVERLAY = "# @package _global_"


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Values by dotted path; a list is a value."""
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    below = [leaves(value, f"{path}.{key}".strip(".")) for key, value in tree.items()]
    return {name: value for part in below for name, value in part.items()}


def written(file: Path) -> dict[str, Any]:
    """The values of a file by their path in params.yaml, without those of files it takes in."""
    tree: Any = OmegaConf.to_container(OmegaConf.load(file))
    tree.pop("defaults", None)
    overlay = file.read_text(encoding="utf-8").startswith(OVERLAY)
    return leaves(tree if overlay else {file.parent.name: tree})


def differing(file: Path, *overrides: str) -> list[str]:
    """The fields of a file that the composition with it gives another value."""
    with chdir(ROOT):  # where conf/ is stamped
        params = parse(compose(ROOT, [f"{file.parent.name}={file.stem}", *overrides]))
    validate(params)
    loaded = leaves(params)
    return [name for name, value in written(file).items() if loaded.get(name) != value]


def test_every_group_has_a_default() -> None:
    """A folder that config.yaml does not name would never be composed."""
    with chdir(ROOT):
        composed = choices(ROOT, []).keys()
    assert composed == {file.parent.name for file in FILES}
    assert all(file.is_file() and file.suffix == ".yaml" for file in FILES)
    assert len(FILES) >= 45


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}={file.stem}")
def test_what_is_written_is_what_is_loaded(file: Path) -> None:
    assert written(file)
    assert differing(file) == []


def test_planted_fault_a_value_that_is_undone_is_named() -> None:
    """The toy overlay sets grad_accum to 2, whatever a file of batch says."""
    batch = ROOT / "conf/batch/default.yaml"
    assert differing(batch, "experiment=toy") == ["batch.grad_accum"]
