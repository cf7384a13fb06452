"""Seeded fuzz of the data path: mutated files of every format, each with what must come out of it.

usage: python bench/fuzz_data.py [--seed 0] [--files 10000] [--stage 100]

Every file is read in-process under both policies, with an alarm of 5 s: the kept messages, the
dropped rows with their reasons, and the findings with rule and line must be those that its maker
states (bench/fuzz/). What is kept is tokenized with all proofs, with another alarm: the trained
texts, the over-long rows and the rules of the refused ones must be those stated too. Any other
exception is a failure. `--stage` files more go through the real stages prepare and tokenize in a
copy of src: exit code 0 or 2, all outputs or none, rows in = kept + dropped in both reports. A
tenth as many declarations of where a file lies are refused, or not, as stated (fuzz/addresses.py).
Prints every failure with the number that makes its file again; exits 1 if any.
"""

import argparse
import collections
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "src")]

from fuzz.addresses import fuzz_addresses  # noqa: E402
from fuzz.case import ANYTHING, Case  # noqa: E402
from fuzz.make import case_of, short  # noqa: E402
from fuzz.stage import fuzz_stage  # noqa: E402
from fuzz.tokens import token_faults, use_home, warm_up  # noqa: E402

from hashtune.data.cleaning import Policy  # noqa: E402
from hashtune.data.schemas import as_row  # noqa: E402
from hashtune.data.sources import DataFile, Loaded, load  # noqa: E402

SECONDS = 5.0


class Late(Exception):
    """The alarm."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise Late in this block after `seconds` of this process: a busy machine is no failure."""

    def ring(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(case: Case, folder: Path) -> list[str]:
    """What came out otherwise than stated; empty when all is right."""
    (folder / "data.bin").write_bytes(case.data)
    file = DataFile(
        "fuzz",
        "data.bin",
        None,
        case.schema,
        "data",
        pinned=False,
        format=case.format,
        fields=case.fields,
    )
    wrong = []
    for action in ("error", "drop"):
        with alarm(SECONDS):
            loaded = load(file, folder, Policy(action, 1.0))
            for conversation in loaded.conversations:
                row = json.loads(json.dumps(as_row(conversation), ensure_ascii=False).encode())
                if json.loads(row["messages"]) != conversation.messages:
                    wrong.append(f"{action}: line {conversation.line} is not written as it is read")
        wrong += [f"{action}: {fault}" for fault in _faults(case, loaded, action)]
    if loaded.conversations:
        with alarm(SECONDS):
            wrong += token_faults(case, loaded.conversations)
    return wrong


def _faults(case: Case, loaded: Loaded, action: str) -> Iterator[str]:
    free = {line for rule, line in case.damaged if rule == ANYTHING}

    def stated(pairs: Mapping[int, Any]) -> dict[int, Any]:
        return {line: value for line, value in pairs.items() if line not in free}

    kept = {conversation.line: conversation.messages for conversation in loaded.conversations}
    if stated(kept) != case.kept:
        yield f"kept {short(kept)}, expected {short(case.kept)}"
    dropped = {row.line: row.reason for row in loaded.dropped}
    if action == "drop" and stated(dropped) != case.bad:
        yield f"dropped {dropped}, expected {case.bad}"
    if not 0 <= loaded.rows - len(case.kept) - len(case.bad) <= len(free):
        yield f"{loaded.rows} rows, expected {len(case.kept)} + {len(case.bad)}"
    expected = [pair for pair in case.damaged if pair[0] != ANYTHING]
    if action == "error" or not kept:
        expected += [(rule, line) for line, rule in case.bad.items()]
    if action == "drop" and not kept and dropped:
        expected.append(("no-rows", 0))
    said = [(found.rule, found.line or 0) for found in loaded.findings]
    if not _agree(said, expected, free):
        yield f"findings {said}, expected {expected}"


def _agree(said: list[tuple[str, int]], expected: list[tuple[str, int]], free: set[int]) -> bool:
    """Every expected finding is said, and nothing else but further rules of the same lines.

    Line 0 stands for any line.
    """
    anywhere = {rule for rule, line in expected if line == 0}
    lines = {line for _, line in expected if line} | free
    return all(
        pair in said if pair[1] else any(rule == pair[0] for rule, _ in said) for pair in expected
    ) and all(line in lines or rule in anywhere for rule, line in said)


def fuzz(seed: int, numbers: range, folder: Path) -> tuple[list[str], collections.Counter[str]]:
    """Check these files; failures, and how often each format was made."""
    failures, counts = [], collections.Counter[str]()
    warm_up()
    for number in numbers:
        case = case_of(seed, number)
        counts[case.format] += 1
        try:
            wrong = check(case, folder)
        except Late:
            wrong = [f"took more than {SECONDS} s"]
        except Exception:  # noqa: BLE001  the fuzz is the edge: it tells and goes on
            wrong = [traceback.format_exc(limit=-3)]
        failures += [f"{seed}/{number} ({case.maker}): {fault}" for fault in wrong]
    return failures, counts


def share(
    seed: int, in_process: range, in_stages: range, folder: Path
) -> tuple[list[str], collections.Counter[str]]:
    """One process's share of the files, in a folder of its own."""
    folder.mkdir()
    failures, counts = fuzz(seed, in_process, folder)
    if in_stages:
        failures += fuzz_stage(seed, in_stages, folder)
        counts["through both stages"] += len(in_stages)
    return failures, counts


def in_processes(
    seed: int, files: int, stage: int, folder: Path
) -> tuple[list[str], collections.Counter[str]]:
    """Share the files among as many processes as there are cores."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
        shares = [
            pool.submit(
                share,
                seed,
                range(core, files, cores),
                range(files + core, files + stage, cores),
                folder / str(core),
            )
            for core in range(cores)
        ]
        results = [done.result() for done in shares]
    failures = [failure for found, _ in results for failure in found]
    return failures, sum((counts for _, counts in results), collections.Counter[str]())


def main() -> int:
    """Fuzz, then say how many files of which format, and every failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--stage", type=int, default=100)
    parser.add_argument("--only", type=int, help="make the file with this number again, in full")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= use_home(folder)
        warm_up()
        if arguments.only is not None:
            print(case_of(arguments.seed, arguments.only))
            failures, counts = fuzz(
                arguments.seed, range(arguments.only, arguments.only + 1), folder
            )
        else:
            failures, counts = in_processes(
                arguments.seed, arguments.files, arguments.stage, folder
            )
            failures += fuzz_addresses(arguments.seed, range(arguments.files // 10), folder)
            counts["addresses"] += arguments.files // 10
    print(f"{counts.total()} files in {time.monotonic() - started:.0f} s: {dict(counts)}")
    for failure in failures[:50]:
        print(failure)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
