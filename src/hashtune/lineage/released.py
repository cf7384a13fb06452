"""The seal of a released adapter: its files by hash, beside them, and the refusal of any other.

The seal tells an adapter that left the project by itself (`dvc artifacts get`, a copy) from one
that was changed on the way. It proves no author: that is the Git tag's part.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hashtune.errors import Finding
from hashtune.spec.methods import FULL_FILES, PEFT_FILES
from hashtune.writers import read_json, sha256_file, write_json

SEAL = "release.json"
PASS = "pass"
TRAIN, ENTRY, ADAPTER = "reports/train.json", "build/release/entry.json", "build/train/adapter"
GOT_AGAIN = "get the registered version again (`dvc artifacts get`)"
UNRELEASED = "train further until the gate passes; --unreleased looks at it all the same"


def seal(folder: Path, entry: Mapping[str, Any], entry_sha256: str) -> None:
    """Write the seal: name, run, verdict, base, the entry's hash, and every other file's."""
    write_json(
        folder / SEAL,
        {
            "name": entry["name"],
            "run": entry["run"],
            "verdict": entry["verdict"],
            "base": entry["base"]["source"],
            "entry_sha256": entry_sha256,
            "files": dict(_hashes(folder)),
        },
    )


def seal_findings(folder: Path) -> list[Finding]:
    """What differs from the seal; nothing where there is none."""
    file = folder / SEAL
    if not file.is_file():
        return []
    try:
        sealed = read_json(file)
        named, verdict = dict(sealed["files"]), sealed["verdict"]
    except (ValueError, KeyError, TypeError):
        return [Finding("tampered", "is damaged", file=str(file), fix=GOT_AGAIN)]
    found = dict(_hashes(folder))
    problems = [(name, "is not there") for name in named if name not in found]
    problems += [(n, "was not released") for n in found if n not in named]
    problems += [
        (name, "is not the released file")
        for name in named
        if found.get(name, "") != named[name] and name in found
    ]
    findings = [
        Finding("tampered", message, file=str(folder / name), fix=GOT_AGAIN)
        for name, message in sorted(problems)
    ]
    if verdict != PASS:
        message = f"its verdict is {verdict!r}"
        findings.append(Finding("rejected", message, file=str(file), fix=UNRELEASED))
    return findings


def untrusted(folder: Path, root: Path, *, unreleased: bool = False) -> list[Finding]:
    """Why an adapter is not to be used: it differs from its seal or from what train recorded, or
    the gate judged it and did not pass it. An adapter from elsewhere, without a seal, and one that
    nobody has judged yet, are let pass.

    Args:
        folder: the adapter's.
        root: of the project, with reports/ and build/.
        unreleased: look at a rejected adapter too; a changed one stays refused.
    """
    found = seal_findings(folder) or _unsealed(folder, root)
    return [finding for finding in found if not (unreleased and finding.rule == "rejected")]


def _unsealed(folder: Path, root: Path) -> list[Finding]:
    """Of a folder without a seal: what train and release of this project say of its weights."""
    names = (PEFT_FILES[0], FULL_FILES[0])
    weights = next((folder / name for name in names if (folder / name).is_file()), None)
    if (folder / SEAL).is_file() or weights is None:
        return []  # whoever loads it says what is missing
    sha256, report = sha256_file(weights), root / TRAIN
    own = folder.resolve() == (root / ADAPTER).resolve()
    if own and report.is_file() and sha256 != read_json(report)["adapter_sha256"]:
        fix = f"`dvc checkout {ADAPTER}`, or `dvc repro train`"
        message = f"is not the file that train recorded in {TRAIN}"
        return [Finding("tampered", message, file=str(weights), fix=fix)]
    entry = read_json(root / ENTRY) if (root / ENTRY).is_file() else {}
    if sha256 not in entry.get("adapter", {}).values() or entry["verdict"] == PASS:
        return []
    message = f"was not passed by the gate (verdict: {entry['verdict']})"
    return [Finding("rejected", message, file=str(folder), fix=UNRELEASED)]


def _hashes(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if name != SEAL:
            yield name, sha256_file(file)
