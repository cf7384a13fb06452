"""A revision rebuilt from nothing: a fresh clone, data by hash, an empty cache and an empty store.

`--no-run-cache` alone would still check out results that match dvc.lock, so the clone gets a cache
of its own. What the caller's workspace holds is never read: tracked data come from its DVC cache or
remote by their hash, the base from its source by its pin.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.lineage import git
from hashtune.parent import die_with_parent

# what a stage may need to reach a network or find its tools; nothing that could change a result
KEPT = re.compile(
    r"(PATH|HOME|USER|LANG|LC_.*|TMPDIR|TERM|(HTTPS?|NO|ALL)_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE"
    r"|PIP_.*|HF_TOKEN|HF_ENDPOINT|HF_HUB_OFFLINE|AWS_.*|GOOGLE_.*|AZURE_.*|DVC_NO_ANALYTICS"
    r"|CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH|SSH_AUTH_SOCK|HASHTUNE_PROCESSES)",
    re.IGNORECASE,
)
STAGE = re.compile(r"Running stage '(\w+)'")
STEP = re.compile(r"\s*step (\d+)/(\d+)\b")
START = re.compile(r"\s*(starting at step 1|resuming after step \d+|branching after step \d+)")
KEPT_LINES = 60


@dataclass(slots=True)
class Run:
    """What `dvc repro` executed: its stages in order, how training began and its last step, and
    the last lines. `code` is the exit code; `stopped` why we ended it ourselves."""

    executed: list[str] = field(default_factory=list)
    begun: str | None = None
    step: int = 0
    steps: int = 0
    tail: list[str] = field(default_factory=list)
    code: int = 0
    stopped: str | None = None

    def read(self, line: str) -> None:
        """Take one line of the output."""
        self.tail = [*self.tail[1 - KEPT_LINES :], line.rstrip("\n")]
        if found := STAGE.search(line):
            self.executed.append(found[1])
        elif found := START.match(line):
            self.begun = found[1]
        elif found := STEP.match(line):
            self.step, self.steps = int(found[1]), int(found[2])


def commit_of(root: Path, revision: str) -> str:
    """The commit of a branch, tag, registry version or hash; InputError when there is none."""
    fix = "name a commit, a branch or a tag such as triage@v1.0.0 (`git tag` lists them)"
    return git.known(root, revision, field="REV", fix=fix)


def clone(root: Path, commit: str, folder: Path, *, cache: Path | None) -> None:
    """Clone the repository at a commit, detached.

    Args:
        root: the repository.
        commit: full hash.
        folder: where the clone goes; must not exist.
        cache: folder of the DVC cache that the clone uses, or None for one of its own, whatever the
            project or this machine shares.
    """
    source, target = str(root.resolve()), str(folder.resolve())
    git.output(root, "clone", "--quiet", "--no-checkout", "--no-hardlinks", source, target)
    git.output(folder, "checkout", "--quiet", "--detach", commit)
    local = root / ".dvc/config.local"  # a remote or its credentials that Git does not hold
    if local.is_file():
        (folder / ".dvc/config.local").write_bytes(local.read_bytes())
        (folder / ".dvc/config.local").chmod(0o600)
    own = folder.resolve() / ".dvc/cache"
    _dvc(folder, "config", "--local", "cache.dir", str(own if cache is None else cache))


def cache_of(root: Path) -> Path:
    """The DVC cache of a repository, whether or not it is there."""
    return Path(_dvc(root, "cache", "dir").stdout.strip())


def fetch_data(folder: Path, cache: Path) -> None:
    """Check out what .dvc files of the clone track, by hash: from `cache` where it holds it
    (verified), else from the clone's remote. InputError when neither gives it."""
    tracked = [name for name in git.listed(folder, "*.dvc") if not name.startswith(".dvc/")]
    if not tracked:
        return
    _dvc(folder, "remote", "add", "--local", "caller-cache", str(cache))
    _dvc(folder, "remote", "modify", "--local", "caller-cache", "verify", "true")
    _dvc(folder, "pull", "--remote", "caller-cache", "--allow-missing", *tracked, check=False)
    if _missing(folder, tracked):
        _verify_remotes(folder)
        _dvc(folder, "pull", "--allow-missing", *tracked, check=False)
    if missing := _missing(folder, tracked):
        fix = "`dvc pull` in a clone that has the remote, or `dvc push` where the data are"
        raise InputError(
            Finding("no-data", "is neither in the DVC cache nor in a remote", file=name, fix=fix)
            for name in missing
        )


def _verify_remotes(folder: Path) -> None:
    """Let DVC hash what a remote gives; by default it takes a damaged object for the whole one."""
    settings = _dvc(folder, "config", "--list").stdout  # `remote list` breaks long lines
    for name in re.findall(r"^remote\.(.+)\.url=", settings, flags=re.MULTILINE):
        _dvc(folder, "remote", "modify", "--local", name, "verify", "true")


def _missing(folder: Path, tracked: Sequence[str]) -> list[str]:
    names = [name.removesuffix(".dvc") for name in tracked]
    return [name for name in names if not (folder / name).exists()]


def fetch_outputs(folder: Path, stage: str) -> None:
    """Check out what the cache, or else the remote, still holds of a stage's recorded outputs."""
    _dvc(folder, "checkout", "--allow-missing", stage, check=False)
    if _dvc(folder, "config", "core.remote", check=False).stdout.strip():
        _dvc(folder, "pull", "--allow-missing", stage, check=False)


def changed_reports(folder: Path) -> list[str]:
    """Reports in Git that the rebuild wrote otherwise; not those of a machine or of `verify`."""
    names = [change.path for change in git.changes(folder, "reports", untracked=False)]
    own = ("reports/machine/", "reports/verify.json")
    return [name for name in names if not name.startswith(own)]


def environment(home: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the rebuild: nothing of the caller's but KEPT.

    An environment variable that changed a recorded result is therefore missing here, and seen.
    """
    kept = {name: value for name, value in given.items() if KEPT.fullmatch(name)}
    tools = str(Path(sys.executable).parent)
    path = kept.get("PATH", "")
    return {**kept, "PATH": f"{tools}{os.pathsep}{path}", "HASHTUNE_HOME": str(home)}


def execute(
    folder: Path,
    home: Path,
    *arguments: str,
    say: Callable[[str], None],
    enough: Callable[[Run, str], str | None],
    sign: signal.Signals = signal.SIGTERM,
) -> Run:
    """Run `dvc repro` in a clone, every line passed on; it ends with this process.

    An exception, Ctrl-C too, is raised when the last stage has ended: what it still writes must not
    meet the removal of the folder.

    Args:
        folder: the clone.
        home: folder for $HASHTUNE_HOME.
        arguments: of `dvc repro`.
        say: gets each line.
        enough: is asked after each line; a reason ends DVC and its stage.
        sign: how they are ended; SIGTERM writes a checkpoint and no output.
    """
    run = Run()
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", *arguments],
        cwd=folder,
        env=environment(home, os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509  no threads here
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                run.read(line)
                say(line.rstrip("\n"))
                if run.stopped is None and (reason := enough(run, line)):
                    run.stopped = reason
                    os.killpg(process.pid, sign)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            for _line in process.stdout:  # its end is that of the last stage
                pass
            process.wait()
            raise
    run.code = process.returncode
    return run


def _dvc(folder: Path, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=git.environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-300:]
        message = f"`dvc {' '.join(arguments)}` ended with {done.returncode}: {words}"
        raise InputError(Finding("tool-failed", message, fix="run it by hand to see more"))
    return done
