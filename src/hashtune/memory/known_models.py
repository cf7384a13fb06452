"""Bases whose shape is known without a download: memory/known/*.json, or a config.json of yours.

    {"name", "nominal": "70B", "parameters": exact, "of": "meta-llama/Llama-3.1-70B",
     "source": {"repo", "path", "commit"} of the table that the sizes were read from,
     "config": the fields of config.json that the shape needs}

Word ties (tie_word_embeddings) and head sizes that the table leaves out follow from the published
total, which each file repeats and a test compares with the shape's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError, nearest
from hashtune.memory.config_rules import config_findings
from hashtune.memory.family_shapes import common_names
from hashtune.memory.positions import KEY

FOLDER = Path(__file__).parent / "known"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Base:
    """A base by its config.json. `nominal` is the size in its name, "" where there is none."""

    name: str
    nominal: str
    source: str
    config: Mapping[str, Any]

    @property
    def positions(self) -> int | None:
        """How many positions it has, None for no such limit."""
        count = common_names(self.config).get(KEY)
        return count if isinstance(count, int) else None


def known_names() -> list[str]:
    """The names that `find_base` knows."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def find_base(named: str) -> Base:
    """The base of a known name (in any case), of a config.json, or of a folder with one.

    Raises:
        InputError: there is none of that name or path, or the file is no JSON object or says what
            no decoder has.
    """
    if named.lower() in known_names():
        file = FOLDER / f"{named.lower()}.json"
        data = json.loads(file.read_text(encoding="utf-8"))
        source = data["source"]
        told = f"{data['of']}, from {source['repo']} {source['path']} at {source['commit'][:12]}"
        return Base(data["name"], data["nominal"], told, data["config"])
    path = _path(named)
    if path is None:
        message = f"{named!r} is no known base, and no config.json or folder with one"
        fix = f"{nearest(named.lower(), known_names())}; or a path to a config.json"
        raise InputError(Finding("no-model", message, field="--model", fix=fix))
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return Base(name, "", str(path), _read(path))


def base_of_repo(repo: str) -> Base | None:
    """The known base that a repository of the hub publishes, None where none is."""
    for name in known_names():
        data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        if data["of"].lower() == repo.lower():
            return find_base(name)
    return None


def _path(named: str) -> Path | None:
    """The config.json meant; None where there is none."""
    path = Path(named)
    try:
        path = path / CONFIG if path.is_dir() else path
        return path if path.is_file() else None
    except OSError:  # no name of a file: too long
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, no JSON, too long a number, too deep
        raise InputError(Finding("json", str(error), file=str(path))) from error
    if not isinstance(config, dict):
        raise InputError(Finding("json", "is no object", file=str(path)))
    if findings := config_findings(config, file=str(path)):
        raise InputError(findings)
    return config
