"""hashtune doctor: is this clone in a state to run? Each finding has the one command that heals it.

Exit code 0 when all is well, 1 otherwise. Changes nothing.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from hashtune.errors import Finding, InputError
from hashtune.lineage import states
from hashtune.spec.drift import check_drift
from hashtune.spec.load import read_params, validate
from hashtune.store.loader import home
from hashtune.training.left_runs import LeftRun, left_runs

SHOWN = 3  # settings of a stale params.yaml
STALE = "stale-params"
OWN_CHECKS = ("untracked-conf", "stray-params")  # which name the command that heals them


def run(_arguments: argparse.Namespace) -> int:
    """Print every check with what it found; 1 when something needs healing."""
    root = Path.cwd()
    count = 0
    if pids := states.at_work(root):
        print(f"note  DVC is at work here (pid {', '.join(map(str, pids))}): ask when it has ended")
        return 0
    for label, check in CHECKS.items():
        findings = list(check(root))
        count += len(findings)
        print(f"{'ok  ' if not findings else 'HEAL'}  {label}")
        for finding in findings:
            print(f"      {str(finding).replace(chr(10), chr(10) + '      ')}")
    for left in left_runs(home()):
        print(f"note  {_words(left)}")
    print("healthy" if count == 0 else f"{count} to heal, in this order")
    return 0 if count == 0 else 1


def _drift(root: Path) -> Iterator[Finding]:
    """params.yaml that is no valid spec, or not what conf/ composes; conf/ that does not."""
    if any(states.conflicts(root)):
        return
    try:
        params = read_params(root / "params.yaml")
        check_drift(root, params)
        validate(params)
    except InputError as error:
        findings = [finding for finding in error.findings if finding.rule not in OWN_CHECKS]
        keys = [str(finding.field) for finding in findings if finding.rule == STALE]
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            message = f"is not what conf/ composes: {', '.join(keys[:SHOWN])}{more}"
            yield Finding(STALE, message, file="params.yaml", fix="hashtune compose")
        yield from (finding for finding in findings if finding.rule != STALE)


def _broken_runs(_root: Path) -> Iterator[Finding]:
    """Runs whose checkpoints are all broken: training refuses to begin again silently."""
    for left in left_runs(home()):
        if left.step is None and left.holder is None:
            message = f"no checkpoint is complete: {'; '.join(left.reasons)}"
            yield Finding(
                "no-checkpoint", message, file=str(left.folder), fix=f"rm -r {left.folder}"
            )


def _words(left: LeftRun) -> str:
    size = f"{left.bytes / 1e6:.0f} MB"
    name = f"run {left.folder.name[:16]} ({size})"
    if left.holder:
        return f"{name}: {left.holder} trains there"
    if left.step is None:
        return f"{name}: nothing to go on from"
    return f"{name}: `dvc repro` with its spec goes on after step {left.step}"


# in the order in which they must be healed: Git, what DVC reads, what hashtune reads
CHECKS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "no lock of a killed Git": states.git_locks,
    "params.yaml and dvc.lock hold no merge conflict": states.conflicts,
    "HEAD is on a branch": states.detached_head,
    "dvc.lock is whole": states.cut_lock,
    "dvc exp run composes conf/": states.composition_off,
    "DVC verifies what its remotes give": states.unverified_remotes,
    "no params.yaml outside the root": states.stray_params,
    "all of src, conf and data is known to Git": states.untracked,
    "params.yaml is a valid spec, and what conf/ composes": _drift,
    "the installed packages are the locked ones": states.other_environment,
    "no unfinished outputs": states.unfinished,
    "every stopped run can go on": _broken_runs,
}
