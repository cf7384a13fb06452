"""States of Git, DVC and the environment in which a run goes wrong, each with what heals it.

Every check takes the root of the project and returns findings; none changes anything.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from hashtune.errors import Finding, InputError
from hashtune.lineage import git
from hashtune.lineage.code import environment_findings, read_lock
from hashtune.lineage.lock import read_stages

LOCK = Path("dvc.lock")
CONFLICT = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)
COMPOSED = ("params.yaml", "dvc.lock")
HASH = re.compile(r"[0-9a-f]{32}(\.dir)?")
GIT_LOCKS = ("index.lock", "HEAD.lock", "config.lock")
STRAY = ("conf/params.yaml", "data/params.yaml", "src/params.yaml")


def at_work(root: Path) -> list[int]:
    """Processes of DVC that hold files of this clone: what they change now is nothing to heal."""
    file = root / ".dvc/tmp/rwlock"
    if not file.is_file():
        return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:  # it is being written
        return []
    holders = [h for e in entries.values() for h in [e.get("write"), *(e.get("read") or ())] if h]
    return sorted({holder["pid"] for holder in holders if Path(f"/proc/{holder['pid']}").exists()})


def conflicts(root: Path) -> Iterator[Finding]:
    """Merge markers in files that are composed or recorded, never merged by hand."""
    files = [root / name for name in COMPOSED]
    marked = [
        file.name
        for file in files
        if file.is_file() and CONFLICT.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    if marked:
        fix = (
            f"git checkout --ours {' '.join(marked)} && hashtune compose && "
            "dvc repro --pull --allow-missing"
        )
        yield Finding("merge-conflict", "holds merge markers", file=", ".join(marked), fix=fix)


def cut_lock(root: Path) -> Iterator[Finding]:
    """A dvc.lock that was cut off, emptied or deleted while Git has it."""
    file = root / LOCK
    known = _said(root, "ls-files", "dvc.lock") != ""
    if not file.is_file():
        if known:
            yield Finding("broken-lock", "is gone", file="dvc.lock", fix="git checkout dvc.lock")
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    if CONFLICT.search(text):
        return
    try:
        stages = read_stages(text)
        broken = [name for name, stage in stages.items() if not _is_stage(stage)]
        broken = broken or _lost(root, stages)
    except InputError:
        broken = ["it"]
    if broken:
        way = "git checkout dvc.lock && dvc repro" if known else "rm dvc.lock && dvc repro"
        message = f"was cut off or damaged ({broken[0]} cannot be read)"
        yield Finding("broken-lock", message, file="dvc.lock", fix=way)


def _lost(root: Path, stages: Mapping[str, Any]) -> list[str]:
    """Stages of dvc.yaml that the committed lock has and this one lost, and the last one where this
    lock is the committed one up to some line, or where it lacks outs: it was cut where it can still
    be read."""
    now = (root / LOCK).read_text(encoding="utf-8").rstrip()
    pipeline = (root / "dvc.yaml").read_text(encoding="utf-8")
    names = yaml.safe_load(pipeline)["stages"]
    last = list(stages)[-1:]
    if last and len(stages[last[0]].get("outs") or ()) < _outs(names.get(last[0])):
        return last
    try:
        before = (git.read(root, "HEAD", "dvc.lock") or "").rstrip()
        committed = read_stages(before)
    except InputError:
        return []
    if now != before and before.startswith(now) and names.keys() >= committed.keys():
        return [list(stages)[-1]]
    return [name for name in committed if name in names and name not in stages]


def _outs(stage: Mapping[str, Any] | None) -> int:
    """How many outs dvc.yaml names for a stage; 0 for one that it does not know."""
    return sum(len(stage.get(kind) or ()) for kind in ("outs", "metrics", "plots")) if stage else 0


def _is_stage(stage: object) -> bool:
    """Whether an entry is whole: a command, and a hash for each of its files."""
    if not isinstance(stage, dict) or "cmd" not in stage:
        return False
    files = [*(stage.get("deps") or ()), *(stage.get("outs") or ())]
    return bool(files) and all(
        isinstance(file, dict) and "path" in file and HASH.fullmatch(str(file.get("md5")))
        for file in files
    )


def detached_head(root: Path) -> Iterator[Finding]:
    """HEAD on no branch, as a killed `dvc exp run` leaves it."""
    if _said(root, "symbolic-ref", "--quiet", "HEAD") or not _said(root, "rev-parse", "HEAD"):
        return
    moves = _said(root, "reflog", "--format=%gs", "HEAD").splitlines()
    found = (re.match(r"checkout: moving from (\S+) to ", line) for line in moves)
    left = [match[1] for match in found if match]
    branches = _said(root, "branch", "--format=%(refname:short)").splitlines()
    branch = next((name for name in left if name in branches), "BRANCH")
    message = "HEAD is detached: a killed `dvc exp run` leaves it so, also after the next success"
    yield Finding("detached-head", message, fix=f"git checkout {branch}")


def git_locks(root: Path) -> Iterator[Finding]:
    """Locks that a killed Git left behind; while one works they are its own."""
    folder = root / _said(root, "rev-parse", "--git-dir")
    for name in GIT_LOCKS:
        if (folder / name).is_file():
            message = "a Git that was killed left its lock (or one is at work: then wait)"
            yield Finding("git-lock", message, file=str(folder / name), fix=f"rm {folder / name}")


def untracked(root: Path) -> Iterator[Finding]:
    """Files that a queued or temporary run would miss, because it runs from Git."""
    try:
        names = git.listed(root, "--others", "--exclude-standard", "--", "src", "conf", "data")
    except InputError:  # without Git there is no state to heal
        return
    if names:
        message = "not in Git, so absent in --queue and --temp runs and in every clone"
        fix = f"git add -N {shlex.join(names)}"
        yield Finding("untracked", message, file=", ".join(names), fix=fix)


def stray_params(root: Path) -> Iterator[Finding]:
    """A params.yaml that `dvc exp run` in a subfolder left."""
    for name in STRAY:
        if (root / name).is_file():
            message = "`dvc exp run` in a subfolder wrote it; the one that counts is params.yaml"
            yield Finding("stray-params", message, file=name, fix=f"rm {name}")


def composition_off(root: Path) -> Iterator[Finding]:
    """A .dvc/config that does not compose: `dvc exp run -S` would edit params.yaml alone."""
    config = _dvc_config(root)
    for option, value in (("enabled", "true"), ("plugins_path", "src")):
        found = config.get("hydra", option, fallback="")
        if found.lower() != value:
            message = f"hydra.{option} is {found!r}: dvc exp run would not compose conf/"
            fix = f"dvc config hydra.{option} {value}"
            yield Finding("composition-off", message, file=".dvc/config", fix=fix)


def unverified_remotes(root: Path) -> Iterator[Finding]:
    """DVC remotes whose objects are taken unread, DVC's default for most kinds: what was damaged
    there would enter the cache under the hash of the whole object, and count as it from then on."""
    config = _dvc_config(root)
    for section in config.sections():
        name = re.fullmatch(r"""'remote "(.+)"'""", section)
        if name and config.get(section, "verify", fallback="").lower() != "true":
            message = f"remote {name[1]} does not verify the hash of what it downloads"
            fix = f"dvc remote modify {name[1]} verify true"
            yield Finding("unverified-remote", message, file=".dvc/config", fix=fix)


def _dvc_config(root: Path) -> ConfigParser:
    """The project's DVC settings, those of this clone over those in Git."""
    config = ConfigParser(interpolation=None)  # a URL may hold a percent sign
    config.read([root / ".dvc/config", root / ".dvc/config.local"], encoding="utf-8")
    return config


def other_environment(root: Path) -> Iterator[Finding]:
    """Packages that are not installed in their locked version."""
    file = root / "requirements.lock"
    lock = read_lock(file.read_text(encoding="utf-8"), file=file.name)
    yield from environment_findings(lock, lock)


def unfinished(root: Path) -> Iterator[Finding]:
    """Temporary folders and files that a stage killed with SIGKILL left; nothing reads them."""
    left = sorted(
        path.relative_to(root).as_posix()
        for folder in ("build", "reports")
        for path in (root / folder).rglob(".*.tmp")
    )
    if left:
        message = f"{len(left)} unfinished outputs of killed stages; nothing reads them"
        yield Finding("unfinished", message, file=left[0], fix=f"rm -r {' '.join(left)}")


def _said(root: Path, *arguments: str) -> str:
    """What a Git command prints; "" where it fails: without Git there is no state to heal."""
    try:
        return git.found(root, *arguments) or ""
    except InputError:
        return ""
