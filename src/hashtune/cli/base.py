"""hashtune base: where the pinned base model lies on this machine, fetched if it is missing."""

from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.store.loader import materialise
from hashtune.store.manifest import read_manifest

MANIFEST = Path("build/base/manifest.json")


def require_manifest() -> Path:
    """The manifest's path; InputError when the base stage has not run."""
    if not MANIFEST.is_file():
        raise InputError(Finding("no-base", "is missing", file=str(MANIFEST), fix="dvc repro base"))
    return MANIFEST


def run() -> int:
    """Print the folder that holds weights, config and tokenizer."""
    print(materialise(read_manifest(require_manifest())))
    return 0
