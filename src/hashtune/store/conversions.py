"""Which manifest a wheel's conversion gave on this machine: a second one would cost a minute.

A note in $HASHTUNE_HOME/conversions/ holds for the same wheel, the same libraries and the same
converter only; the files it names are verified like any others.
"""

from importlib.metadata import version
from pathlib import Path

from hashtune import writers
from hashtune.store import wheel
from hashtune.store.blobs import home
from hashtune.store.manifest import Manifest, Source, manifest_json, read_manifest

CONVERTERS = ("gguf", "numpy", "tokenizers", "torch", "transformers")


def _note(source: Source) -> Path:
    libraries = {name: version(name) for name in CONVERTERS}
    key = writers.canonical_json([source, libraries, writers.sha256_file(Path(wheel.__file__))])
    return home() / "conversions" / f"{writers.sha256_bytes(key.encode('utf-8'))}.json"


def recall(source: Source) -> Manifest | None:
    """The manifest noted for this wheel, or None (other kinds are cheap and never noted)."""
    if source["kind"] != "wheel" or not _note(source).is_file():
        return None
    return read_manifest(_note(source))


def remember(manifest: Manifest) -> None:
    """Note what a wheel gave."""
    if manifest.source["kind"] == "wheel":
        writers.write_json(_note(manifest.source), manifest_json(manifest))
