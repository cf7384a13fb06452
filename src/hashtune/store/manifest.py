"""The manifest: which exact files are the base. Needs neither torch nor transformers.

    {"name": "smollm2-135m", "source": {"kind", "repo", "revision", "file", "sha256"},
     "files": {"config.json": {"size", "sha256"}, ...}, "config": {...}, "template_sha256": "..."}

Hashing costs 0.25 to 0.35 s per 270 MB (CPU with SHA instructions, files in the page cache).
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypedDict

from hashtune import writers
from hashtune.errors import Finding, InputError
from hashtune.store.contents import read_object, template_text

# What loading a base can read. Pickle weights, code, nested folders, a second copy of the weights
# in another layout and adapters (transformers would silently apply one) are left out.
USED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
UNUSED = ("*/*", "adapter_*", "consolidated*", "trainer_state.json")
PICKLE = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class Source(TypedDict):
    """Where the files come from; the spec's base_model section with `source` as `kind`.

    `sha256` pins a wheel file, or the tree hash of a directory (see tree_sha256).
    """

    kind: str
    repo: str
    revision: str
    file: str | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the base: size in bytes and hex sha256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The base, by content.

    `source` lets missing files be fetched again. `config` is the parsed config.json.
    `template_sha256` is the sha256 of the chat template's text, or "" when the base has none.
    """

    name: str
    source: Source
    files: dict[str, FileEntry]
    config: dict[str, Any]
    template_sha256: str

    @property
    def key(self) -> str:
        """Hex sha256 over names and hashes of the files: equal content, equal key."""
        return tree_sha256({name: entry.sha256 for name, entry in self.files.items()})

    @property
    def bytes(self) -> int:
        """Sum of the file sizes."""
        return sum(entry.size for entry in self.files.values())


def tree_sha256(hashes: Mapping[str, str]) -> str:
    """The hash of a set of files: sha256 over the sorted lines "name sha256\\n"."""
    lines = "".join(f"{name} {hashes[name]}\n" for name in sorted(hashes))
    return writers.sha256_bytes(lines.encode("utf-8"))


def is_used(name: str) -> bool:
    """Whether a file of this name (relative, with /) belongs to a base."""
    return any(fnmatch(name, glob) for glob in USED) and not any(
        fnmatch(name, glob) for glob in UNUSED
    )


def used_files(directory: Path) -> list[str]:
    """The sorted names of the files directly in `directory` that belong to a base."""
    return sorted(
        path.name for path in directory.iterdir() if path.is_file() and is_used(path.name)
    )


def build_manifest(directory: Path, *, name: str, source: Source) -> Manifest:
    """Hash what lies in `directory`; InputError when it is no complete base in safetensors."""
    files = used_files(directory)
    findings = _incomplete(directory, files)
    if findings:
        raise InputError(findings)
    config = read_object(directory / "config.json")
    template = template_text(directory)
    return Manifest(
        name=name,
        source=source,
        files={
            file: FileEntry(
                (directory / file).stat().st_size, writers.sha256_file(directory / file)
            )
            for file in files
        },
        config=config,
        template_sha256="" if template is None else writers.sha256_bytes(template.encode("utf-8")),
    )


def _incomplete(directory: Path, files: list[str]) -> list[Finding]:
    findings = []
    if not any(file.endswith(".safetensors") for file in files):
        pickles = sorted(
            path.name
            for path in directory.iterdir()
            if any(fnmatch(path.name, glob) for glob in PICKLE)
        )
        found = f"; pickle weights are refused: {', '.join(pickles)}" if pickles else ""
        findings.append(
            Finding(
                "no-safetensors",
                f"the base has no .safetensors weights{found}",
                field="base_model",
                fix="name a revision that carries safetensors, or convert the weights yourself",
            )
        )
    if "config.json" not in files:
        findings.append(Finding("no-config", "the base has no config.json", field="base_model"))
    if not {"tokenizer.json", "tokenizer_config.json"} & set(files):
        findings.append(Finding("no-tokenizer", "the base has no tokenizer", field="base_model"))
    return findings


def check_files(manifest: Manifest, directory: Path) -> list[Finding]:
    """Every file that is missing, differs or does not belong there (empty list: all is well)."""
    findings = []
    for name, entry in sorted(manifest.files.items()):
        problem = _difference(directory / name, entry)
        if problem:
            findings.append(Finding("base-differs", problem, file=name))
    for name in sorted(set(used_files(directory)) - set(manifest.files)):
        findings.append(Finding("base-differs", "is not in the manifest", file=name))
    return findings


def _difference(path: Path, entry: FileEntry) -> str | None:
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != entry.size:
        return f"has {size} bytes, the manifest says {entry.size}"
    found = writers.sha256_file(path)
    return None if found == entry.sha256 else f"has sha256 {found}, not {entry.sha256}"


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data for writers.write_json."""
    return asdict(manifest)


def read_manifest(path: Path) -> Manifest:
    """Read what the stage `base` wrote; InputError when a name or hash could leave the store."""
    data = writers.read_json(path)
    files = {name: FileEntry(**entry) for name, entry in data.pop("files").items()}
    bad = [
        n for n, e in files.items() if not (is_used(n) and re.fullmatch("[0-9a-f]{64}", e.sha256))
    ]
    if bad:
        raise InputError(
            Finding(
                "bad-entry", "is no file of a base", str(path), field=name, fix="run stage base"
            )
            for name in bad
        )
    return Manifest(files=files, **data)
