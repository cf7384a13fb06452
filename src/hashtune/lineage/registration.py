"""May this commit be registered? Every reason against it, found before any tag is made."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.lineage import git
from hashtune.lineage.released import SEAL, seal_findings
from hashtune.writers import read_json, sha256_file

ENTRY = Path("build/release/entry.json")
ADAPTER = Path("build/release/adapter")
REPORT = Path("reports/release.json")
VERSION = r"v\d+\.\d+\.\d+"
STAGE = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What shall be registered: the version, or a part to bump; a stage to assign, or None."""

    version: str | None
    bump: str | None
    stage: str | None


def wanted_findings(wanted: Wanted) -> Iterator[Finding]:
    """Names that GTO would refuse later, or read as options."""
    if wanted.version is not None and not re.fullmatch(VERSION, wanted.version):
        message = f"{wanted.version!r} is no version"
        yield Finding("version", message, field="VERSION", fix="as in v1.2.0")
    if wanted.stage is not None and not re.fullmatch(STAGE, wanted.stage):
        message = f"{wanted.stage!r} is no stage name"
        yield Finding("stage", message, field="--stage", fix="lower case, as in prod or dev")
    if wanted.version is not None and wanted.bump is not None:
        fix = "give a version, or a part to bump"
        yield Finding("contradiction", "stands beside a version", field="--bump", fix=fix)


def artifact_findings(root: Path) -> Iterator[Finding]:
    """The artifact is there, released, and what release recorded; its name is registered."""
    if not (root / ENTRY).is_file() or not (root / REPORT).is_file():
        fix = "`dvc repro`, or `dvc pull build/release`"
        yield Finding("no-entry", "is missing", file=str(ENTRY), fix=fix)
        return
    report = read_json(root / REPORT)
    if sha256_file(root / ENTRY) != report["entry_sha256"]:
        fix = "`dvc checkout build/release`, or `dvc repro`"
        yield Finding("tampered", "is not the entry that release wrote", file=str(ENTRY), fix=fix)
    if not (root / ADAPTER).is_dir():
        message = f"does not exist: the verdict is {report['verdict']!r}"
        yield Finding("rejected", message, file=str(ADAPTER), fix="train until the gate passes")
    else:
        yield from _seal(root / ADAPTER, report["entry_sha256"])
    names = _artifacts(root)
    if report["name"] not in names:
        message = f"is {report['name']!r}, and artifacts: in dvc.yaml has {', '.join(names)}"
        fix = "one name in conf/release and under artifacts:"
        yield Finding("artifact-name", message, field="release.name", fix=fix)


def _seal(folder: Path, entry_sha256: str) -> Iterator[Finding]:
    """What release wrote has a seal that names its entry; without one nothing would be compared."""
    file = folder / SEAL
    fix = "`dvc checkout build/release`, or `dvc repro`"
    if not file.is_file():
        yield Finding("tampered", "is not there", file=str(file), fix=fix)
        return
    found = seal_findings(folder)
    yield from found
    if not found and read_json(file)["entry_sha256"] != entry_sha256:
        yield Finding("tampered", "is the seal of another entry", file=str(file), fix=fix)


def _artifacts(root: Path) -> list[str]:
    import yaml

    text = (root / "dvc.yaml").read_text(encoding="utf-8")
    artifacts: Mapping[str, Any] = yaml.safe_load(text).get("artifacts", {})
    return sorted(artifacts)


def git_findings(root: Path) -> Iterator[Finding]:
    """Nothing changed since the commit, and a remote has it."""
    try:
        changed = git.changes(root, untracked=True)
    except InputError as error:  # told beside the other reasons
        yield from error.findings
        return
    if changed:
        message = f"{len(changed)} files are not committed, the first {changed[0].path!r}"
        yield Finding("not-clean", message, fix="`git add` and `git commit`, or `git stash`")
    try:
        git.output(root, "fetch", "--quiet")
    except InputError as error:
        message = error.findings[0].message
        yield Finding("not-pushed", message, fix="add a Git remote and push")
        return
    if not git.pushed(root):
        yield Finding("not-pushed", "no branch of a remote holds HEAD", fix="`git push`")


def data_findings(root: Path) -> Iterator[Finding]:
    """With a DVC remote, the artifact must be there: `dvc artifacts get` takes it from it."""
    if not _dvc(root, "config", "core.remote").stdout.strip():
        yield Finding("no-remote", "no DVC remote is set", fix="`dvc remote add -d NAME URL`")
        return
    status = _dvc(root, "status", "--cloud", "--quiet", "release")
    if status.returncode != 0:
        message = "the DVC remote does not hold what release wrote"
        yield Finding("not-pushed", message, fix="`dvc push --run-cache`")


def register(root: Path, name: str, wanted: Wanted, *, push: bool) -> list[str]:
    """Make the tags with GTO; gives its lines.

    Raises:
        InputError: GTO refused.
    """
    options = ["--version", wanted.version] if wanted.version else []
    options += [f"--bump-{wanted.bump}"] if wanted.bump else []
    pushed = ["--push"] if push else []
    lines = _gto(root, "register", name, "HEAD", *options, *pushed)
    if wanted.stage:
        lines += _gto(root, "assign", name, "HEAD", "--stage", wanted.stage, *pushed)
    return lines


def _gto(root: Path, *arguments: str) -> list[str]:
    tool = str(Path(sys.executable).with_name("gto"))  # the package cannot be run by -m
    done = _call(root, tool, *arguments)
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-300:]
        fix = "`gto show` lists what is registered"
        raise InputError(Finding("gto", f"`gto {arguments[0]}` refused: {words}", fix=fix))
    return done.stdout.splitlines()


def _dvc(root: Path, *arguments: str) -> "CompletedProcess[str]":
    return _call(root, sys.executable, "-m", "dvc", *arguments)


def _call(root: Path, *command: str) -> "CompletedProcess[str]":
    surroundings = git.environment(os.environ)  # GTO calls Git
    return run(command, cwd=root, env=surroundings, capture_output=True, text=True, check=False)
