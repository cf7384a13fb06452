"""Peak memory of stage tokenize at ten times the rows; exits 1 when it is over 1.1 times as much.

    python bench/tokenize_memory.py ROWS.jsonl [--times 10] [--processes 2]

ROWS.jsonl has "question" and "answer" per line (GSM8K); the base is the synthetic one. Every
question gets a number, so that all rows differ. The stage's own function runs on the rows, then on
ten times as many, each in a fresh process; printed are the peaks of that process and of its largest
worker.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from hashtune import writers
from hashtune.records import conversation_schema
from hashtune.spec.load import read_params
from hashtune.store.loader import resolve
from hashtune.store.manifest import Source, manifest_json
from hashtune.store.synthetic import CHAT_TEMPLATE

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.10
BATCH_ROWS = 4096


def main() -> int:
    """Measure both and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    wanted = parser.parse_args()
    lines = wanted.rows.read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        few = measured(Path(folder, "few"), pairs, 1, wanted.processes)
        many = measured(Path(folder, "many"), pairs, wanted.times, wanted.processes)
    worst = 0.0
    for name, before, after in zip(("parent", "largest worker"), few, many, strict=True):
        ratio = after / before if before else 0.0
        worst = max(worst, ratio)
        print(f"{name:14}  {before:7.1f} MiB  {after:7.1f} MiB  ratio {ratio:.3f}")
    return int(worst > LIMIT)


def measured(
    folder: Path, pairs: list[dict[str, str]], times: int, processes: int
) -> tuple[float, float]:
    """MiB of the stage's process and of its largest worker (0 where it has none)."""
    prepare(folder, pairs, times)
    settings = {"HASHTUNE_HOME": str(folder / "home"), "HASHTUNE_PROCESSES": str(processes)}
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); import tokenize_memory"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; tokenize_memory.run_stage()"],
        cwd=folder,
        env={**os.environ, **settings, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    own, largest = done.stdout.split()[-2:]
    print(f"{times * len(pairs):,} rows done", flush=True)
    return float(own), float(largest)


def run_stage() -> None:
    """In the fresh process: the stage, then its peaks in MiB."""
    from hashtune.stages import tokenize

    tokenize.run()
    # VmHWM: ru_maxrss of a new process starts at what its parent held
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(own / 1024, largest / 1024)


def prepare(folder: Path, pairs: list[dict[str, str]], times: int) -> None:
    """The stage's inputs: settings, base, and the rows as prepare writes them."""
    os.environ["HASHTUNE_HOME"] = str(folder / "home")
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    manifest = resolve(source, name="tiny", say=lambda text: None)
    writers.write_json(folder / "build/base/manifest.json", manifest_json(manifest))
    params = read_params(ROOT / "params.yaml")
    pin = {"chat_template": "base", "sha256": writers.sha256_bytes(CHAT_TEMPLATE.encode())}
    params = {
        "data": {**params["data"], "max_seq_len": 1024},
        "tokenizer": {**params["tokenizer"], **pin},
        "cleaning": params["cleaning"],
    }
    writers.write_text(folder / "params.yaml", yaml.safe_dump(params))
    (folder / "build/prepare").mkdir(parents=True)
    for name, found in (("train", rows(pairs, times)), ("eval", rows(pairs[:8], 1))):
        path = folder / f"build/prepare/{name}.parquet"
        writers.stream_parquet(path, tables(found), conversation_schema())


def rows(pairs: list[dict[str, str]], times: int) -> Iterator[dict[str, object]]:
    """Each question and answer, `times` over, with a number in the question."""
    for number in range(times * len(pairs)):
        pair = pairs[number % len(pairs)]
        messages = [
            {"role": "user", "content": f"{number:06d}: {pair['question']}"},
            {"role": "assistant", "content": pair["answer"]},
        ]
        yield {
            "id": f"{number:016x}",
            "source": "gsm8k",
            "line": number + 1,
            "group": None,
            "messages": writers.canonical_json(messages, indent=None),
        }


def tables(found: Iterator[dict[str, object]]) -> Iterator[object]:
    """The rows as tables."""
    import pyarrow as pa

    while batch := list(islice(found, BATCH_ROWS)):
        yield pa.Table.from_pylist(batch, schema=conversation_schema())


if __name__ == "__main__":
    sys.exit(main())
