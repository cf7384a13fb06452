"""Which adapters a command may load: those that `untrusted` lets pass and whose other files, too,
are the ones that the gate judged.

Weights alone do not make an adapter: with another `lora_alpha` in adapter_config.json the same
weights give other answers than those that passed.
"""

from collections.abc import Iterator
from pathlib import Path

from hashtune.errors import Finding
from hashtune.lineage.released import ADAPTER, ENTRY, SEAL, untrusted
from hashtune.spec.methods import FULL_FILES, PEFT_FILES
from hashtune.writers import read_json, sha256_file

RELEASED = "build/release/adapter"
WEIGHTS = (PEFT_FILES[0], FULL_FILES[0])


def refusals(folder: Path, root: Path, *, unreleased: bool = False) -> list[Finding]:
    """Why an adapter is not to be loaded.

    Args:
        folder: the adapter's.
        root: of the project, with reports/ and build/.
        unreleased: look at a rejected adapter too; a changed one stays refused.
    """
    found = untrusted(folder, root, unreleased=unreleased)
    return found or list(_changed(folder, root))


def _changed(folder: Path, root: Path) -> Iterator[Finding]:
    """Files of a judged adapter that are others now, and a released adapter without its seal. What
    has a seal was compared with it, and of an adapter that nobody judged nothing is known."""
    if (folder / SEAL).is_file():
        return
    if folder.resolve() == (root / RELEASED).resolve() and folder.is_dir():
        fix = "`dvc checkout build/release`, or `dvc repro`"
        yield Finding("tampered", "is not there", file=str(folder / SEAL), fix=fix)
        return
    entry = read_json(root / ENTRY) if (root / ENTRY).is_file() else {}
    judged = {
        name.removeprefix(f"{ADAPTER}/"): sha for name, sha in entry.get("adapter", {}).items()
    }
    weights = [name for name in WEIGHTS if name in judged and (folder / name).is_file()]
    if not any(sha256_file(folder / name) == judged[name] for name in weights):
        return
    for name, sha256 in sorted(judged.items()):
        file = folder / name
        if file.is_file() and sha256_file(file) != sha256:
            message = f"is not the file of the adapter that {ENTRY} names"
            fix = f"`dvc checkout {ADAPTER}`, or `dvc repro train`"
            yield Finding("tampered", message, file=str(file), fix=fix)
