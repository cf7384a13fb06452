"""`hashtune verify` on the toy pipeline: an honest commit is identical, five planted ones are not.

usage: python bench/verify_faults.py        (in make prove)

Clones HEAD, builds and commits the toy pipeline with a store of its own, and shows: every stage of
an honest commit is run again and identical; its first steps alone likewise; a resume is exact. Then
each planted change is named with the right cause: one byte of data, another version in the lock,
one thread more, a variable that a stage reads, code changed between kill and resume; and a resume
that forgets the optimizer is seen. tests/pipeline/test_verify.py plants those that are quick.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hashtune import writers
from hashtune.training.intact import FILES

ROOT = Path(__file__).resolve().parent.parent
RESUME = ("--resume", "--steps", "6", "--kill", "3")


class Failed(Exception):
    """A promise that did not hold."""


def require(holds: bool, claim: str) -> None:
    """Print a claim that holds; Failed otherwise."""
    if not holds:
        raise Failed(claim)
    print(f"PROVED {claim}", flush=True)


class Toy:
    """A clone with the toy pipeline built and committed, and its store."""

    def __init__(self, folder: Path) -> None:
        self.path, self.home = folder / "clone", folder / "home"

    def environment(self) -> dict[str, str]:
        """The caller's, with a store and an identity of its own."""
        who = {"NAME": "bench", "EMAIL": "bench@example.com"}
        names = {f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in who.items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"HASHTUNE_HOME": str(self.home), "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}
        return {**os.environ, **names, **own, "PATH": path, "PYTHONPATH": "src"}

    def run(self, *command: str, code: int = 0, **variables: str) -> str:
        """Run a command in the clone; Failed when it ends with another code."""
        environment = {**self.environment(), **variables}
        done = subprocess.run(
            command,
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != code:
            raise Failed(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def build(self) -> None:
        """Clone HEAD, compose, run, commit, tag."""
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.path)], check=True)
        self.run("git", "checkout", "-q", "-B", "main")
        self.run("hashtune", "compose", "experiment=toy")
        self.run("dvc", "repro")
        self.run("git", "commit", "-q", "-a", "-m", "toy")
        self.run("git", "tag", "built")

    def restore(self) -> None:
        """Back to what was built."""
        self.run("git", "checkout", "-q", "-f", "-B", "main", "built")
        self.run("git", "clean", "-qfd")
        self.run("dvc", "checkout", "-q")

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that occurs in a file."""
        path = self.path / file
        text = path.read_text(encoding="utf-8")
        if old not in text:
            raise Failed(f"{old!r} is not in {file}")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def commit(self) -> None:
        """Commit what is tracked."""
        self.run("git", "commit", "-q", "-a", "-m", "planted")

    def verify(self, *arguments: str, code: int) -> dict[str, Any]:
        """reports/verify.json after `hashtune verify`."""
        began = time.monotonic()
        self.run("hashtune", "verify", *arguments, code=code)
        print(f"  verify {' '.join(arguments)}: {time.monotonic() - began:.0f} s", flush=True)
        report: dict[str, Any] = json.loads((self.path / "reports/verify.json").read_text())
        return report

    def train_until(self, words: str, *command: str) -> None:
        """Run a command and SIGTERM it once it says this."""
        with subprocess.Popen(
            command,
            cwd=self.path,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if words in line:
                    process.send_signal(signal.SIGTERM)


def honest(toy: Toy) -> None:
    """Nothing planted."""
    report = toy.verify(code=0)
    names = [stage["stage"] for stage in report["stages"]]
    require(report["executed"] == names, f"verify runs all {len(names)} stages again")
    require({s["verdict"] for s in report["stages"]} == {"identical"}, "each is identical")
    report = toy.verify("--steps", "3", code=0)
    require(report["training"]["steps"] >= 3, "the first steps alone are identical")
    output = toy.run("hashtune", "verify", *RESUME)
    require("verdict: identical" in output, "a killed training resumes to the same bits")


def data(toy: Toy) -> None:
    """One byte."""
    toy.edit("data/triage/train.jsonl", "invoice", "Invoice")


def version(toy: Toy) -> None:
    """Another version in the lock."""
    toy.edit("requirements.lock", "\ntorch==2.13.0", "\ntorch==2.12.0")


def thread(toy: Toy) -> None:
    """One more than was trained with."""
    toy.run("hashtune", "compose", "experiment=toy", "determinism.threads=2")


def variable(toy: Toy) -> None:
    """A stage that reads the environment; the caller's had it."""
    file = "src/hashtune/stages/prepare.py"
    salt = "    writers.write_jsonl(OUT / 'ledger.jsonl', [{'salt': os.environ.get('SALT', '')}])\n"
    toy.edit(file, "from pathlib import Path\n", "import os\nfrom pathlib import Path\n")
    toy.edit(file, '    frame.write_report("prepare"', f'{salt}    frame.write_report("prepare"')
    toy.run("dvc", "repro", "prepare", SALT="x")


def mixed(toy: Toy) -> None:
    """The state of old code under the identity of the new one: train itself refuses it."""
    runs = toy.home / "runs"
    toy.train_until("step 2/6", "dvc", "repro", "-f", "-s", "train")
    known = {path.name for path in runs.iterdir()}
    (old,) = (path for path in runs.iterdir() if list(path.glob("step-*")))
    toy.edit("src/hashtune/training/schedules.py", "math.pi * done)) / 2", "math.pi * done)) / 3")
    toy.train_until("starting at step 1", "dvc", "repro", "train")
    (new,) = (path for path in runs.iterdir() if path.name not in known)
    for path in new.glob("step-*"):
        path.rename(new / f".gone-{path.name}")
    (folder,) = old.glob("step-*")
    mine = next(new.glob(".gone-*")) / "state.json"
    state = {**writers.read_json(folder / "state.json")}
    state |= {key: value for key, value in writers.read_json(mine).items() if key in IDENTITY}
    writers.write_json(folder / "state.json", state)
    entries = {}
    for name in FILES:
        size, digest = (folder / name).stat().st_size, writers.sha256_file(folder / name)
        entries[name] = {"size": size, "sha256": digest}
    writers.write_json(folder / "manifest.json", entries)
    folder.rename(new / folder.name)
    output = toy.run("dvc", "repro", "train")
    require("resuming after step 2" in output, "the planted state is resumed")


IDENTITY = ("identity", "spec", "code")  # of a checkpoint's state
PLANTS: dict[str, tuple[Callable[[Toy], None], str]] = {
    "one byte of data": (data, "data"),
    "another version of a library": (version, "environment"),
    "one thread more": (thread, "threads"),
    "a variable that a stage reads": (variable, "undeclared input"),
    "code changed between kill and resume": (mixed, "mixed run"),
}


def planted(toy: Toy) -> None:
    """Each change, its cause, and a resume that is wrong."""
    for name, (plant, kind) in PLANTS.items():
        toy.restore()
        plant(toy)
        toy.commit()
        cause = toy.verify(code=1)["cause"]
        require(cause["kind"] == kind, f"{name}: {cause['kind']}: {cause['words'][:90]}")
    toy.restore()
    forgets = "(lambda *_: None)(optimizer"
    toy.edit("src/hashtune/training/loop.py", "restore_optimizer(optimizer", forgets)
    toy.commit()
    output = toy.run("hashtune", "verify", *RESUME, code=1)
    require("verdict: differs" in output, "a resume that forgets the optimizer differs")


def main() -> int:
    """Build, verify, plant; 0 when everything held."""
    with tempfile.TemporaryDirectory(prefix="hashtune-verify-faults-") as folder:
        toy = Toy(Path(folder))
        try:
            toy.build()
            honest(toy)
            planted(toy)
        except Failed as failure:
            print(f"\nNOT PROVED: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
