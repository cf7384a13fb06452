"""hashtune base: where the pinned base model lies on this machine, fetched if it is missing."""

import argparse
import sys
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


def run(_arguments: argparse.Namespace) -> int:
    """Print the folder that holds weights, config and tokenizer."""
    folder = materialise(read_manifest(require_manifest()), say=_to_stderr)
    print(folder)
    return 0


def _to_stderr(text: str) -> None:
    """Standard output holds the folder alone, so that scripts can take it."""
    print(text, file=sys.stderr)
