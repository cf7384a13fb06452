"""Does a killed training end with the bits of one that was left alone, on this machine, today?

What one asks after an upgrade: the same training twice in a clone, the second time killed
(SIGKILL) on the way and resumed.
"""

import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.lineage import rebuild
from hashtune.lineage.differences import first_difference, first_step

OUT = Path("build/train")
SHARED = ("blobs", "bases", "conversions", "locks", "tmp")  # of the store; runs/ is our own
KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Resumed:
    """What came out: `resumed` is how the second training went on, `difference` and `step` say
    where its output and its curves first differ from the first one's; None: the same bits."""

    steps: int
    killed_at: int
    resumed: str
    difference: str | None
    step: int | None


def verify_resume(
    root: Path,
    commit: str,
    folder: Path,
    *,
    store: Path,
    steps: int,
    kill: int,
    say: Callable[[str], None],
) -> Resumed:
    """Train `steps` steps twice in a clone, the second time with a kill after step `kill`.

    Args:
        root: the repository; its commits, DVC cache and remotes are read.
        commit: full hash.
        folder: an empty folder; the clone goes there, and a store with the bases of `store`.
        store: the caller's $HASHTUNE_HOME.
        steps: length of the training, at most; the plan may hold fewer.
        kill: the step after which the second one is killed.
        say: gets each line of what runs.

    Raises:
        InputError: a stage refused, training ends before it could be killed, or nothing was left
            to resume.
    """
    clone, home = folder / "clone", folder / "home"
    rebuild.clone(root, commit, clone, cache=None)
    rebuild.fetch_data(clone, rebuild.cache_of(root))
    _shorten(clone / "params.yaml", steps)
    home.mkdir()
    for name in SHARED:
        (store / name).mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(store / name)
    first = _train(clone, home, "train", say=say)
    if first.steps <= kill:
        message = f"training has {first.steps} steps, no step {kill} to be killed after and go on"
        fix = f"give --kill a step before {first.steps}"
        raise InputError(Finding("too-short", message, field="--kill", fix=fix))
    shutil.copytree(clone / OUT, folder / "first")
    shutil.rmtree(home / "runs")
    _train(clone, home, "--force", "--single-item", "train", say=say, kill=kill)
    second = _train(clone, home, "--force", "--single-item", "train", say=say)
    if second.begun is None or not second.begun.startswith("resuming"):
        message = "the killed training left no checkpoint to go on from, so nothing is proven"
        fix = "give a --kill beyond checkpoint.every_steps, or a lower checkpoint.every_steps"
        raise InputError(Finding("no-resume", message, field="--kill", fix=fix))
    return Resumed(
        steps=first.steps,
        killed_at=kill,
        resumed=second.begun,
        difference=first_difference(folder / "first", clone / OUT),
        step=first_step(folder / "first/curves", clone / OUT / "curves"),
    )


def _shorten(params: Path, steps: int) -> None:
    """Set duration.max_steps, as an override: `spec` compares the rest with conf/."""
    text = params.read_text(encoding="utf-8")
    changed, count = re.subn(r"(?m)^(  max_steps: ).*$", rf"\g<1>{steps}", text)
    if count != 1:
        raise InputError(Finding("no-field", "has no duration.max_steps", file=params.name))
    params.write_text(changed, encoding="utf-8")


def _train(
    clone: Path,
    home: Path,
    *arguments: str,
    say: Callable[[str], None],
    kill: int | None = None,
) -> rebuild.Run:
    def enough(run: rebuild.Run, _line: str) -> str | None:
        return KILLED if kill is not None and run.step >= kill else None

    run = rebuild.execute(clone, home, *arguments, say=say, enough=enough, sign=signal.SIGKILL)
    if run.code != 0 and run.stopped is None:
        message = next((line for line in reversed(run.tail) if line.strip()), "dvc repro failed")
        stage = run.executed[-1] if run.executed else "dvc"
        raise InputError(Finding("stage-failed", f"{stage}: {message.strip()}", fix="dvc repro"))
    return run
