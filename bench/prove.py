"""The slow proofs on the real base: what README's first screen promises, from a fresh clone.

usage: make prove        (with the other proofs about 30 minutes on 2 cores; CI runs it)

Clones HEAD into a temporary folder, with an empty store, and shows:
  1. `dvc repro` runs every stage and ends with verdict pass;
  2. `dvc repro` again runs nothing;
  3. `dvc repro -f -s train` with an empty run store starts at step 1 and gives the same bits;
  4. the plan's rehearsal and closed form are right for real steps on this base
     (bench/plan_vs_real.py, six cases of 64 tokens);
  5. `experiment=smoke` runs every stage.
Seconds are printed, not judged: a busy machine proves nothing about the code.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
MEANING = "verdict: pass"
REAL = "bench/plan_vs_real.py"


class Failed(Exception):
    """A proof that did not hold."""


def run(
    command: str, folder: Path, home: Path, heard: Callable[[str], None] = lambda _: None
) -> tuple[str, float]:
    """Run a command, echo its output, return it and the seconds it took; Failed when it fails.

    `heard` gets each line as it comes.
    """
    print(f"\n$ {command}", flush=True)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HASHTUNE_HOME": str(home),
        "PYTHONPATH": "src",  # `hashtune` is this checkout's, and must run the clone's code
    }
    started = time.monotonic()
    process = subprocess.Popen(
        command.split(),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(f"  {line}", end="", flush=True)
        lines.append(line)
        heard(line)
    if process.wait() != 0:
        raise Failed(f"{command} ended with {process.returncode}")
    return "".join(lines), time.monotonic() - started


def require(holds: bool, claim: str) -> None:
    """Print a claim that holds; Failed otherwise."""
    if not holds:
        raise Failed(claim)
    print(f"PROVED {claim}", flush=True)


def stages(output: str) -> list[str]:
    """Stages that DVC executed."""
    return re.findall(r"Running stage '(\w+)'", output)


def every_stage(clone: Path) -> list[str]:
    """Names of the stages in dvc.yaml."""
    text = (clone / "dvc.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load(text)["stages"])


def adapter_sha256(clone: Path) -> str:
    """sha256 of the adapter, as train reported it."""
    report = json.loads((clone / "reports/train.json").read_text(encoding="utf-8"))
    return str(report["adapter_sha256"])


def prove(clone: Path, home: Path) -> None:
    """All proofs, in order."""
    output, seconds = run("dvc repro", clone, home)
    # gate's only output is in Git: it is skipped where the clone gives the committed bits
    missing = set(every_stage(clone)) - set(stages(output)) - {"gate"}
    require(not missing, f"a fresh clone runs every stage ({seconds:.0f} s)")
    lock = subprocess.run(["git", "diff", "--quiet", "dvc.lock"], cwd=clone, check=False)
    print(f"dvc.lock is {'other than' if lock.returncode else 'byte for byte'} the committed one")
    output, _ = run("hashtune check --gate", clone, home)
    require(MEANING in output, "the verdict on test is pass")
    machine = json.loads((clone / "reports/machine/train.json").read_text(encoding="utf-8"))
    trained = machine["train_seconds"] + machine["eval_seconds"]
    print(f"training took {trained:.0f} s at {machine['tokens_per_second']:.0f} tokens/s")

    output, seconds = run("dvc repro", clone, home)
    require(stages(output) == [], f"again, nothing runs ({seconds:.1f} s)")

    before = adapter_sha256(clone)
    shutil.rmtree(home / "runs")
    output, _ = run("dvc repro -f -s train", clone, home)
    require("starting at step 1" in output, "a forced training starts at step 1")
    require(adapter_sha256(clone) == before, f"and gives the same bits, {before[:16]}")

    base, _ = run("hashtune base", clone, home)
    folder = base.splitlines()[-1]
    run(f"{sys.executable} {REAL} --base {folder} --lengths 64 --some --jobs 2", clone, home)
    require(True, "real steps need what the rehearsal says within 1 %, the closed form within 10 %")

    run("hashtune compose experiment=smoke", clone, home)
    output, seconds = run("dvc repro", clone, home)
    require("release" in stages(output), f"experiment=smoke runs to the end ({seconds:.0f} s)")


def main() -> int:
    """Clone, prove, clean up; 0 when everything held."""
    with tempfile.TemporaryDirectory(prefix="hashtune-prove-") as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        try:
            prove(clone, home)
        except Failed as failure:
            print(f"\nNOT PROVED: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
