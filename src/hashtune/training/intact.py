"""Is a checkpoint what was written? Size and sha256 of each file, by its manifest."""

from pathlib import Path
from typing import Any

from hashtune import writers

STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
FILES = (STATE, TENSORS)


def write_manifest(folder: Path) -> None:
    """Write the manifest of the files that lie there, the last file of a checkpoint."""
    manifest = {
        name: {
            "size": (folder / name).stat().st_size,
            "sha256": writers.sha256_file(folder / name),
        }
        for name in FILES
    }
    writers.write_json(folder / MANIFEST, manifest)


def complete(folder: Path) -> str | None:
    """None for a complete checkpoint, else the reason why it is none."""
    if not (folder / MANIFEST).is_file():
        return f"{MANIFEST} is missing"
    manifest = _read_manifest(folder / MANIFEST)
    if manifest is None:
        return f"{MANIFEST} is not a manifest of ours (cut off?)"
    for name, entry in manifest.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["size"]:
            return f"{name} has {file.stat().st_size} bytes, its manifest says {entry['size']}"
        if writers.sha256_file(file) != entry["sha256"]:
            return f"{name} differs from its manifest"
    return None


def _read_manifest(path: Path) -> dict[str, dict[str, Any]] | None:
    """The manifest, or None when it is cut off, empty or does not name exactly FILES."""
    try:
        manifest = writers.read_json(path)
    except ValueError:  # JSONDecodeError and UnicodeDecodeError
        return None
    if not isinstance(manifest, dict) or sorted(manifest) != sorted(FILES):
        return None
    fits = all(isinstance(e, dict) and e.keys() == {"size", "sha256"} for e in manifest.values())
    return manifest if fits else None
