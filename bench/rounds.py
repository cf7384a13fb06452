"""Measured children: each has a fresh process, and all run in turn, round after round.

A child prints its result as one JSON object in its last line. It is started as the bench was, at
the same priority.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Result = dict[str, Any]
Name = TypeVar("Name", bound=Hashable)
SHOWN = 3000  # characters of a failed child's messages
ROOT = Path(__file__).resolve().parent.parent


def result_of(text: str) -> Result:
    """The JSON object in the last line of a child's output."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object in the last line of {text[-SHOWN:]!r}")
    return found


def child(command: Sequence[str], env: Mapping[str, str]) -> Result:
    """Run a child to its end; ends the bench with the child's own words where it failed."""
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'bench'}"}
    done = subprocess.run(
        command, env=os.environ | path | env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr[-SHOWN:]}"
        )
    return result_of(done.stdout)


def in_turn(
    runs: Mapping[Name, Callable[[], Result]], rounds: int, say: Callable[[str], None]
) -> dict[Name, list[Result]]:
    """Every contender once a round, every second round backwards; results by contender."""
    results: dict[Name, list[Result]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(list(runs)):
            results[name].append(runs[name]())
            say(f"round {number + 1} {name}: {json.dumps(results[name][-1])}")
    return results


def median_of(results: Sequence[Result], key: str) -> float:
    """Median over the rounds."""
    return statistics.median(result[key] for result in results)


def memory(device: str) -> int:
    """Peak bytes: what torch allocated on CUDA, what the process held on a CPU."""
    if device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    return peak_bytes()


def clocks(device: str) -> tuple[float, float]:
    """Seconds on the clock and of CPU time, once a GPU has done what it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def machine(device: str) -> str:
    """The device's name."""
    if device == "cuda":
        import torch

        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return processor()


def peak_bytes() -> int:
    """Peak resident bytes of this process; ru_maxrss would start at those of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024  # said in kB, which are KiB


def processor() -> str:
    """The CPU's name and which number formats it computes in."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except FileNotFoundError:
        return platform.processor()
    known = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    found = {key.strip(): value for key, _, value in (s.partition(":") for s in text.splitlines())}
    flags = [flag for flag in known if flag in found.get("flags", "").split()]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {found.get('model name', '').strip()} ({' '.join(flags)})"
