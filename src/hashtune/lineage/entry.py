"""The registry entry: everything needed to rebuild, load and trust one adapter.

No commit, dirty flag, environment or time: the Git tag is the commit, and the entry must have the
same bits when the same inputs give it again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune.writers import sha256_file


def hash_files(paths: list[Path]) -> dict[str, str]:
    """Posix path to hex sha256, folders walked in name order."""
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {file.as_posix(): sha256_file(file) for file in files}


def build_entry(
    *,
    name: str,
    spec: Mapping[str, Any],
    manifest: Mapping[str, Any],
    gate: Mapping[str, Any],
    train: Mapping[str, Any],
    hashes: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """The entry as plain data.

    Args:
        name: registry name.
        spec: spec.json ({"name": run name, "spec": params}).
        manifest: the base's manifest.
        gate: reports/gate.json.
        train: reports/train.json.
        hashes: {"code": ..., "data": ..., "adapter": ...}, each path -> sha256.
    """
    return {
        "name": name,
        "run": spec["name"],
        "spec": spec["spec"],
        "base": manifest,
        "code": hashes["code"],
        "data": hashes["data"],
        "adapter": hashes["adapter"],
        "checkpoint_step": train["adapter_step"],
        "training": train,
        "verdict": gate["verdict"],
        "evidence": gate,
    }
