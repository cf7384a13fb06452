"""Two clones at different paths give the same dvc.lock and the same reports, byte for byte.

usage: python bench/two_clones.py [--experiment NAME]     (toy: about 3 minutes on 2 cores)

Each clone has a store and a DVC cache of its own, tokenize works in one process in the first and
in three in the second, and `dvc repro -f` runs every stage in both. Exit 1 on a difference; the
first one in pipeline order is named with the file and the row, key, tensor or line.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from hashtune.lineage.differences import first_difference

ROOT = Path(__file__).resolve().parent.parent
LOCK = "dvc.lock"
IDENTITY = {"GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@example.com"} | {
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@example.com",
}


def call(folder: Path, *command: str, home: Path | None = None, processes: int = 1) -> None:
    """Run a command in a clone, its output on ours; CalledProcessError when it fails."""
    print(f"\n{folder.name}$ {' '.join(command)}", flush=True)
    environment = {
        **os.environ,
        **IDENTITY,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HASHTUNE_HOME": str(home or folder.parent / "home"),
        "HASHTUNE_PROCESSES": str(processes),
        "PYTHONPATH": "src",  # `hashtune` is this checkout's, and must run the clone's code
    }
    subprocess.run(command, cwd=folder, env=environment, check=True)


def clone(source: Path, target: Path) -> None:
    """Clone what is committed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    call(target.parent, "git", "clone", "-q", str(source), str(target))


def outputs(folder: Path) -> list[str]:
    """Paths of all outputs in pipeline order, reports included."""
    stages = yaml.safe_load((folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    lock = yaml.safe_load((folder / LOCK).read_text(encoding="utf-8"))["stages"]
    return [out["path"] for name in stages if name in lock for out in lock[name].get("outs", [])]


def difference(one: Path, other: Path) -> str | None:
    """The first difference of two built clones, or None when dvc.lock has the same bytes.

    Outputs come first, in pipeline order: a lock that differs alone has other inputs.
    """
    for path in dict.fromkeys([*outputs(one), *outputs(other)]):
        if found := first_difference(one / path, other / path):
            return f"{path}: {found}"
    if found := first_difference(one / LOCK, other / LOCK):
        return found
    return None


def build(folder: Path, experiment: str) -> str | None:
    """Clone twice, run both; the first difference."""
    one, other = folder / "one", folder / "deeper/by some levels/other"
    clone(ROOT, one)
    if experiment:
        call(one, "hashtune", "compose", f"experiment={experiment}")
        call(one, "git", "commit", "-q", "--allow-empty", "-a", "-m", experiment)
    clone(one, other)
    call(one, "dvc", "repro", "-q", "-f", home=folder / "store-1", processes=1)
    call(other, "dvc", "repro", "-q", "-f", home=folder / "elsewhere/store-2", processes=3)
    return difference(one, other)


def main() -> int:
    """0 when both clones agree."""
    parser = argparse.ArgumentParser(description="two clones, one dvc.lock")
    parser.add_argument("--experiment", default="toy", help="'' for the committed spec")
    with tempfile.TemporaryDirectory(prefix="hashtune-two-") as folder:
        found = build(Path(folder), parser.parse_args().experiment)
    if found:
        print(f"\nNOT PROVED: the two clones differ: {found}", flush=True)
        return 1
    print("\nPROVED two clones, 1 and 3 processes: the same dvc.lock, every output the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
