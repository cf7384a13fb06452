"""Kill training anywhere, start it again, and compare every byte with a run that nobody touched.

usage: python bench/kill_anywhere.py [--kills 100] [--runs 10] [--seed 0] [--jobs 2]
       python bench/kill_anywhere.py --base real       (5 kills in one run of 60 steps)

Clones HEAD, builds the toy pipeline up to train, and chains seeded kills (SIGKILL and SIGTERM; of
the process group, of the stage alone, of dvc alone) over runs of `dvc repro -s train`. A kill
strikes at a drawn event inside a phase (a call or return of Python or C; where the phase writes, of
the file system), so that none hits the imports; kill_shim.py stands for `python`, dvc.yaml and src/
stay as they are. After each kill no trainer may live on, and the next start must continue at the
newest checkpoint. A kill whose phase lay behind it strikes again in a run of its own. A run must
end with the adapter, curves, samples and report of the uninterrupted one, byte for byte; else this
exits 1.
`--base real` takes the spec in conf/ and fetches its base.
"""

import argparse
import collections
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kill_chain import BENCH, Chain, Clone, Failed, Kill, require

FIRST, LAST, ADAPTER = "before the first checkpoint", "last step to rename", "adapter write"
WITHIN = ("step", "checkpoint write", "evaluation")
PHASES = (FIRST, *WITHIN, LAST, ADAPTER)
BLOWS = [(s, t) for s in ("SIGKILL", "SIGTERM") for t in ("group", "stage", "dvc")]
TOY = ("experiment=toy", "duration.max_steps=16")
REAL = ("duration.max_steps=60", "checkpoint.every_steps=10", "checkpoint.eval_every_steps=20")


def draw(kills: int, runs: int, seed: int) -> list[list[Kill]]:
    """Chains of kills, an equal number in each phase; what is left over goes to steps.

    Before the first checkpoint there is one at most in a run: SIGTERM writes one.
    """
    rng = random.Random(seed)
    spread = dict.fromkeys(PHASES, kills // len(PHASES))
    spread[FIRST] = min(spread[FIRST], runs)
    spread["step"] += kills - sum(spread.values())
    chains: list[list[Kill]] = [[] for _ in range(runs)]
    for phase, count in spread.items():
        blows = rng.sample(BLOWS, len(BLOWS))
        for number in range(count):
            blow = blows[number % len(blows)]
            chains[number % runs].append(Kill(phase, *blow, rng.random()))
    for chain in chains:
        within = [kill for kill in chain if kill.phase in WITHIN]
        rng.shuffle(within)
        mixed = iter(within)
        chain[:] = [next(mixed) if kill.phase in WITHIN else kill for kill in chain]
    return chains


def real_chain(seed: int) -> list[list[Kill]]:
    """Five kills, each in another phase."""
    rng = random.Random(seed)
    blows = rng.sample(BLOWS, len(BLOWS))
    phases = (FIRST, *WITHIN, ADAPTER)
    return [[Kill(p, *b, rng.random()) for p, b in zip(phases, blows, strict=False)]]


def build(root: Path, overrides: tuple[str, ...]) -> Clone:
    """Clone HEAD, compose, and run every stage before train."""
    clone = Clone(root / "clone", root / "home")
    subprocess.run(["git", "clone", "-q", str(BENCH.parent), str(clone.path)], check=True)
    for command in (["hashtune", "compose", *overrides], ["dvc", "repro", "plan"]):
        environment = {**clone.environment(), "PYTHONPATH": "src"}
        done = subprocess.run(
            command, cwd=clone.path, env=environment, capture_output=True, text=True, check=False
        )
        require(done.returncode == 0, f"{command} ends:\n{done.stdout}{done.stderr}")
    return clone


def copies(first: Chain, jobs: int) -> list[Chain]:
    """The measured chain, and as many like it in folders of their own."""
    root, chains = first.folder.parent, [first]
    for number in range(1, jobs):
        folder = root / str(number)
        shutil.copytree(first.folder, folder, symlinks=True)
        chain = Chain(Clone(folder / "clone", folder / "home"))
        chain.reference, chain.counts = first.reference, first.counts
        chains.append(chain)
    return chains


def table(chains: list[Chain]) -> str:
    """Kills that hit, by phase and blow."""
    struck = [kill for chain in chains for kill, _ in chain.struck]
    counted = collections.Counter((kill.phase, kill.signal, kill.target) for kill in struck)
    lines = ["| phase | " + " | ".join(f"{s[3:]} {t}" for s, t in BLOWS) + " | all |"]
    lines.append("|---|" + "--:|" * (len(BLOWS) + 1))
    for phase in PHASES:
        row = [counted[phase, *blow] for blow in BLOWS]
        lines.append(f"| {phase} | " + " | ".join(map(str, [*row, sum(row)])) + " |")
    return "\n".join(lines)


def play(chains: list[Chain], orders: list[list[Kill]]) -> None:
    """Share the runs among the clones, one process at a time in each."""

    def work(number: int) -> None:
        for kills in orders[number :: len(chains)]:
            chains[number].run(kills)

    with ThreadPoolExecutor(len(chains)) as pool:
        for done in [pool.submit(work, number) for number in range(len(chains))]:
            done.result()


def show(chains: list[Chain], seconds: float) -> None:
    """What was hit, what it gave, how long it took."""
    struck = [pair for chain in chains for pair in chain.struck]
    missed = [kill for chain in chains for kill in chain.missed]
    print(f"\n{table(chains)}")
    adapter = "build/train/adapter/adapter_model.safetensors"
    print(f"kills that hit: {len(struck)}, missed: {len(missed)}, orphans: 0")
    print(f"runs with every byte of the uninterrupted one: {sum(c.finished for c in chains)}")
    print(f"adapter sha256 in all: {chains[0].reference[adapter]}")
    if struck:
        median = statistics.median(lasted for _, lasted in struck)
        print(f"{seconds:.0f} s after the build; a start and its kill take {median:.1f} s (median)")


def main() -> int:
    """Build, measure, kill, compare; 0 when everything held and no phase was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("kills", 100), ("runs", 10), ("seed", 0), ("jobs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--base", choices=["toy", "real"], default="toy")
    given = parser.parse_args()
    real = given.base == "real"
    orders = real_chain(given.seed) if real else draw(given.kills, given.runs, given.seed)
    with tempfile.TemporaryDirectory(prefix="hashtune-kill-") as folder:
        try:
            root = Path(folder) / "0"
            root.mkdir()
            first = Chain(build(root, REAL if real else TOY))
            first.measure(plain=not real)
            print(f"events: { {p: sum(c) for p, c in first.counts.items()} }", flush=True)
            began = time.monotonic()
            chains = copies(first, 1 if real else min(given.jobs, len(orders)))
            play(chains, orders)
            again = [kill for chain in chains for kill in chain.missed]
            for chain in chains:
                chain.missed.clear()
            play(chains, [[kill] for kill in again])  # a run of its own has every phase
        except Failed as failure:
            print(f"\nNOT PROVED: {failure}", flush=True)
            return 1
        show(chains, time.monotonic() - began)
        return int(any(chain.missed for chain in chains))


if __name__ == "__main__":
    sys.exit(main())
