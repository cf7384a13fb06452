"""BANKING77 through the whole pipeline, and three spoilt runs that the gate must reject.

usage: python bench/banking77.py CSV_FOLDER [--only full lr shuffled refusals] [--rows N]
                                 [--items M] [--also KEY=VALUE ...] [--folder KEPT]

CSV_FOLDER holds banking77_train.csv and banking77_test.csv as published. In a temporary clone of
HEAD with a store of its own (both below --folder where that is given) it writes and commits the
data, composes data=banking77 and runs `dvc repro`:
  full      all training rows, one epoch, all 3,080 test items: accuracy at least 0.85, verdict pass
  lr        the learning rate 1,000 times as high
  shuffled  the answers of the training rows permuted
  refusals  every training answer is a refusal, no replay
The last three train on 1,600 rows and answer 400 items. Each must be rejected, and by the rules
that its cause breaks (banking77_judge.py). Exit 1 otherwise. Seconds are printed, not judged.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import banking77_judge as judge
import banking77_rows
from prove import ROOT, Failed, require, run

DATA = Path("data/banking77")
# Training takes most of the time: one row of 256 tokens a step, as in the demo.
SETTINGS = (
    "data=banking77",
    "cleaning.leakage_action=drop",
    "cleaning.leakage_ngram=13",  # shorter runs are phrases of the trade ("I would like to ...")
    "duration.max_steps=null",
    "checkpoint.every_steps=100",
    "checkpoint.eval_every_steps=500",
    "evaluation.max_new_tokens=12",  # the longest intent has 9 tokens and its end
    "evaluation.batch_size=100",
)
LR, SPOILT_LR = 5e-4, 0.5
SPOILT_ROWS, SPOILT_ITEMS = 1600, 400
WORDS = {"full": f"accuracy of at least {judge.LEAST_ACCURACY} and verdict pass"} | {
    kind: f"{kind} is rejected: {reason.words}" for kind, reason in judge.REASONS.items()
}


def source(name: str, sha256: str) -> str:
    """An override that trains on another file."""
    fields = "format:jsonl,schema:messages,fields:{},weight:1.0,max_rows:null"
    return f'data.sources=[{{name:banking77,uri:{DATA}/{name}.jsonl,sha256:"{sha256}",{fields}}}]'


def overrides(kind: str, rows: int | None, items: int | None, files: Path) -> list[str]:
    """What is composed for a run; `files` is the folder of the data."""
    if kind != "full":
        rows, items = rows or SPOILT_ROWS, items or SPOILT_ITEMS
    caps = {"data.max_rows": rows, "data.test.max_rows": items}
    given = [*SETTINGS, *(f"{key}={value}" for key, value in caps.items() if value)]
    given.append(f"optim.lr={SPOILT_LR if kind == 'lr' else LR}")
    if kind in ("shuffled", "refusals"):
        sha256 = hashlib.sha256((files / f"{kind}.jsonl").read_bytes()).hexdigest()
        given.append(source(kind, sha256))
    if kind == "refusals":
        given.append("data.replay.share=0.0")
    return given


class Clock:
    """Seconds per stage, by the lines in which DVC names the one that starts."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, float]] = []

    def __call__(self, line: str) -> None:
        """Hear a line."""
        if line.startswith("Running stage '"):
            self.starts.append((line.split("'")[1], time.monotonic()))

    def told(self) -> str:
        """Stage and seconds, in order."""
        ends = [*(start for _, start in self.starts), time.monotonic()][1:]
        pairs = zip(self.starts, ends, strict=True)
        return ", ".join(f"{stage} {end - start:.0f}" for (stage, start), end in pairs)


def read(file: Path) -> Any:
    """A JSON file."""
    return json.loads(file.read_text(encoding="utf-8"))


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The lines of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def prepare(clone: Path, csv_folder: Path) -> None:
    """A clone of HEAD that holds the data in Git, as the demo's is."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    banking77_rows.write(csv_folder, clone / DATA)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    subprocess.run(["git", "add", str(DATA)], cwd=clone, check=True)
    subprocess.run(["git", *who, "commit", "-q", "-m", "BANKING77"], cwd=clone, check=True)


def show(kind: str, clone: Path, seconds: float, clock: Clock, *, table: bool) -> tuple[Any, float]:
    """Print a run's figures; its gate report and its accuracy."""
    base, adapter = (
        rows_of(clone / f"build/{part}/task.jsonl") for part in ("baseline", "evaluate")
    )
    accuracy = judge.accuracy_of(adapter)
    print(f"\n== {kind}: {seconds:.0f} s ({clock.told()})")
    print(f"{len(adapter)} test items: base, adapter")
    print(f"  accuracy  {judge.accuracy_of(base):.4f}  {accuracy:.4f}")
    labels = [
        read(clone / f"reports/{part}.json")["task"]["labels"]["answer"]
        for part in ("baseline", "evaluate")
    ]
    for figure in ("macro_f1", "outside_share"):
        print(f"  {figure}  " + "  ".join(f"{side[figure]:.4f}" for side in labels))
    for intent, items, old, new, wrong in judge.per_intent(base, adapter) if table else ():
        print(f"  {intent:<52} {items:>4} {old:6.3f} {new:6.3f}  {wrong}")
    gate = read(clone / "reports/gate.json")
    print(f"verdict {gate['verdict']}: {gate['summary']}")
    for rule in gate["rules"]:
        print(f"  {rule['verdict']:<20} {rule['name']}: {rule['meaning']}")
    return gate, accuracy


def one(kind: str, clone: Path, home: Path, chosen: argparse.Namespace) -> list[str]:
    """A run and what it does not show."""
    given = overrides(kind, chosen.rows, chosen.items, clone / DATA)
    run(" ".join(["hashtune", "compose", *given, *chosen.also]), clone, home)
    clock = Clock()
    _, seconds = run("dvc repro", clone, home, heard=clock)
    gate, accuracy = show(kind, clone, seconds, clock, table=kind == "full")
    if kind == "full":
        return judge.faults_of_full(gate, accuracy)
    return judge.faults_of_spoilt(kind, gate)


def prove(folder: Path, chosen: argparse.Namespace) -> None:
    """The chosen runs, one after the other in one clone, so that what they share runs once."""
    clone, home = folder / "clone", folder / "home"
    if not clone.exists():
        prepare(clone, chosen.csv_folder)
    faults: list[str] = []
    for kind in chosen.only:
        found = one(kind, clone, home, chosen)
        for fault in found:
            print(f"NOT SHOWN {kind}: {fault}", flush=True)
        if not found:
            require(True, WORDS[kind])
        faults += found
    require(not faults, "all that was asked")


def main() -> int:
    """0 when every chosen run showed what it must."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv_folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(WORDS), default=list(WORDS))
    parser.add_argument("--rows", type=int, help="training rows of each run")
    parser.add_argument("--items", type=int, help="test items of each run")
    parser.add_argument("--also", nargs="+", default=[], help="more overrides, for a try")
    parser.add_argument("--folder", type=Path, help="keep clone and store there, go on with them")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hashtune-banking77-") as temporary:
        try:
            prove((chosen.folder or Path(temporary)).resolve(), chosen)
        except Failed as failure:
            print(f"\nNOT PROVED: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
