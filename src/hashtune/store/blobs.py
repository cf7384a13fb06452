"""The folders of the store: each file once per machine, by content, under $HASHTUNE_HOME.

    blobs/<sha256>           the files, downloaded wheels and remote data files
    bases/<manifest key>/    what transformers loads: config.json -> ../../blobs/<sha256>, ...
    conversions/             which base a wheel gave (conversions.py)
    locks/  tmp/             one fetch at a time per base; what is not finished yet

Everything is built aside and renamed into place; the store can be moved or deleted at any time
between two runs.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hashtune import folders, writers
from hashtune.errors import Finding, InputError
from hashtune.store.manifest import Manifest

Say = Callable[[str], None]


def home() -> Path:
    """$HASHTUNE_HOME, or ~/.cache/hashtune."""
    return Path(os.environ.get("HASHTUNE_HOME") or "~/.cache/hashtune").expanduser().absolute()


def blob_of(manifest: Manifest, name: str) -> Path:
    """Where the store keeps this file of the base, whether or not it is there."""
    return home() / "blobs" / manifest.files[name].sha256


def refuse_tampered(manifest: Manifest, names: list[str]) -> None:
    """Findings for every blob that lies there with other bytes than its name says."""
    findings = []
    for name in names:
        blob = blob_of(manifest, name)
        if not blob.is_file():
            continue
        same_size = blob.stat().st_size == manifest.files[name].size
        if not same_size or writers.sha256_file(blob) != manifest.files[name].sha256:
            fix = "delete this file and run again: it is fetched anew"
            message = f"{name} of {manifest.name} was changed after it was stored"
            findings.append(Finding("store-differs", message, file=str(blob), fix=fix))
    if findings:
        raise InputError(findings)


def adopt(manifest: Manifest, scratch: Path) -> None:
    """Move verified files into blobs/; each appears under its name only when it is on disk."""
    for name in sorted(manifest.files):
        adopt_file(scratch / name, manifest.files[name].sha256)


def adopt_file(file: Path, sha256: str) -> Path:
    """Move one verified file into blobs/; returns where it lies now."""
    blob = home() / "blobs" / sha256
    blob.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    if file.stat().st_nlink == 1:  # a hard link shares its mode with the Hugging Face cache
        file.chmod(0o444)
    file.replace(blob)
    folders.fsync_directory(blob.parent)
    return blob


def _links(manifest: Manifest) -> dict[str, str]:
    """Relative, so that the whole store can be moved."""
    return {name: f"../../blobs/{entry.sha256}" for name, entry in manifest.files.items()}


def is_complete(manifest: Manifest) -> bool:
    """Exactly the right links and every blob behind them: a stray file could change a load."""
    target = home() / "bases" / manifest.key
    if not target.is_dir():
        return False
    found = {p.name: str(p.readlink()) if p.is_symlink() else "" for p in target.iterdir()}
    return found == _links(manifest) and all(blob_of(manifest, n).is_file() for n in manifest.files)


def link(manifest: Manifest) -> None:
    """Build the directory of links aside and rename it into place (call it under the lock)."""
    if is_complete(manifest):
        return
    target = home() / "bases" / manifest.key
    with scratch_folder() as scratch:
        fresh = scratch / "fresh"
        fresh.mkdir()
        for name, blob in _links(manifest).items():
            (fresh / name).symlink_to(blob)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(scratch / "stale")
        fresh.rename(target)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder on the store's own file system, so that renames are atomic."""
    parent = home() / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def lock(key: str, say: Say) -> Iterator[None]:
    """One process (or thread) at a time per base or file; freed by the kernel when it dies."""
    path = home() / "locks" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  waits for another process that fetches the same")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
