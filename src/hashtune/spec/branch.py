"""schedule.branch_from: the state of a stable phase that a run begins with, instead of step 1.

    <folder>/state.json           position, curves, RNG, and what the run that kept it was
    <folder>/tensors.safetensors  adapter, optimizer moments, torch's RNG
    <folder>/manifest.json        the step, and size and sha256 of the two; its sha256 is the pin

A folder as train writes it to build/train/stable, inside the project. Checked here without torch:
place and hashes. Whether this run may begin with it is checked in training/branch.py.
"""

from functools import partial
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.places import PARAMS, folder_findings, place
from hashtune.spec.schema import BranchFrom
from hashtune.strict_json import StrictJsonError, parse_strict
from hashtune.writers import sha256_file

STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"
FILES = (STATE, TENSORS)
FIELD = "schedule.branch_from"
RULE = "branch"
WHAT = "a state to branch from"
FIX = "copy build/train/stable of a run with checkpoint.keep_stable; `dvc pull` if DVC tracks it"


def branch_findings(pin: BranchFrom, root: Path) -> list[Finding]:
    """All findings about the pinned folder, read below `root`."""
    if place(root, pin.path)[0].is_relative_to(root.resolve() / "build"):
        message = "lies in build/, which DVC clears before a stage runs"
        fix = f"cp -r {pin.path} data/stable, and name that folder"
        return [Finding(RULE, message, file=PARAMS, field=FIELD, fix=fix)]
    places = partial(folder_findings, pin.path, root=root, field=FIELD, what=WHAT, fix=FIX)
    if found := list(places([MANIFEST])):
        return found
    folder = root / pin.path
    if (sha256 := sha256_file(folder / MANIFEST)) != pin.sha256:
        message = f"{pin.path}/{MANIFEST} has sha256 {sha256}, the spec pins {pin.sha256}"
        return [_differs(message, f"{FIELD}.sha256", "restore the folder, or pin the new content")]
    manifest = _manifest(folder / MANIFEST)
    if manifest is None:
        message = f"{pin.path}/{MANIFEST} names no kept state"
        return [Finding(RULE, message, file=PARAMS, field=FIELD, fix=FIX)]
    if found := list(places(FILES)):
        return found
    return [
        _differs(f"{pin.path}/{name} is not the file of its manifest", FIELD, "restore the folder")
        for name, entry in manifest["files"].items()
        if (folder / name).stat().st_size != entry["size"]
        or sha256_file(folder / name) != entry["sha256"]
    ]


def branch_step(pin: BranchFrom | None, root: Path) -> int:
    """How many steps are not run: those before the state, 0 without one.

    Raises:
        InputError: as branch_findings.
    """
    if pin is None:
        return 0
    if found := branch_findings(pin, root):
        raise InputError(found)
    manifest = _manifest(root / pin.path / MANIFEST)
    assert manifest is not None  # else it is a finding
    return int(manifest["step"])


def _differs(message: str, field: str, fix: str) -> Finding:
    return Finding("pin-differs", message, file=PARAMS, field=field, fix=fix)


def _manifest(path: Path) -> dict[str, Any] | None:
    """{"step": n, "files": {name: {"size", "sha256"}}} of exactly FILES, or None."""
    try:
        manifest = parse_strict(path.read_text(encoding="utf-8"))
    except (StrictJsonError, UnicodeDecodeError):
        return None
    if not isinstance(manifest, dict) or manifest.keys() != {"step", "files"}:
        return None
    step, files = manifest["step"], manifest["files"]
    fits = isinstance(files, dict) and files.keys() == set(FILES) and type(step) is int and step > 0
    entries = list(files.values()) if fits else []
    fits = fits and all(isinstance(e, dict) and e.keys() == {"size", "sha256"} for e in entries)
    return manifest if fits else None
