"""A finished run's copy of its outputs: whole or not to be used, and whether DVC ever recorded it.

    <run>/result/<output>        a file or a folder
    <run>/result/manifest.json   sha256 of each file; where it was handed to DVC, and dvc.lock then

A DVC that dies between the end of train and its own record leaves neither state nor record. Its
next run takes the result instead of training again; every other run, a forced one too, trains.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashtune import writers

RESULT, MANIFEST = "result", "manifest.json"


def write_manifest(result: Path, lock: Path) -> None:
    """The last file of a result. `lock`: DVC's record, not yet of this run."""
    writers.write_json(result / MANIFEST, {"files": _hashes(result), "dvc": _state(lock)})


def whole(result: Path) -> bool:
    """Whether a result is there and its files are those that were written."""
    manifest = _read(result)
    return manifest is not None and manifest.get("files") == _hashes(result)


def unrecorded(run: Path, lock: Path, *, report: str) -> bool:
    """Whether DVC was given the run's result in this very folder and has not recorded it.

    Args:
        run: folder of the run's state.
        lock: dvc.lock; nobody may have touched it since the run ended.
        report: name of an output that DVC hashes as a file and that tells results apart.
    """
    manifest = _read(run / RESULT)
    state = _state(lock)
    if manifest is None or state is None or manifest.get("dvc") != state:
        return False
    if not whole(run / RESULT):
        return False
    # a forced run that ends with the recorded bytes leaves dvc.lock as it is
    md5 = hashlib.md5((run / RESULT / report).read_bytes(), usedforsecurity=False).hexdigest()
    return md5 not in lock.read_text(encoding="utf-8", errors="replace")


def _state(lock: Path) -> dict[str, Any] | None:
    """Which file it is and whether it was written since; None where there is none."""
    if not lock.is_file():
        return None
    stat = lock.stat()
    return {"file": str(lock.resolve()), "inode": stat.st_ino, "mtime_ns": stat.st_mtime_ns}


def _read(result: Path) -> Mapping[str, Any] | None:
    if not (result / MANIFEST).is_file():
        return None
    try:
        manifest = writers.read_json(result / MANIFEST)
    except ValueError:
        return None
    return manifest if isinstance(manifest, dict) else None


def _hashes(result: Path) -> dict[str, str]:
    files = sorted(path for path in result.rglob("*") if path.is_file())
    names = {path.relative_to(result).as_posix(): path for path in files}
    return {name: writers.sha256_file(path) for name, path in names.items() if name != MANIFEST}
