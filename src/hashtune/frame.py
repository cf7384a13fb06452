"""What every stage does the same: find its checkout, read its spec sections, report, exit.

A stage module ends with `if __name__ == "__main__": frame.main("pack", run)`. Exit codes: 0, 2 bad
input, 75 stopped and resumable; anything unexpected is our fault, keeps its traceback and exits 70.
"""

import io
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hashtune import folders, writers
from hashtune.errors import (
    EXIT_FAULT,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_STOPPED,
    Finding,
    InputError,
    Stopped,
)
from hashtune.lineage.code import closure, environment_findings, foreign_code
from hashtune.parent import die_with_parent
from hashtune.spec.load import read_spec

__all__ = [
    "closing_table",
    "die_with_parent",
    "main",
    "progress",
    "read_spec",
    "say",
    "write_machine",
    "write_report",
]

Item = TypeVar("Item")
MACHINE = Path("reports/machine")  # what a machine measured; no stage owns it
PROGRESS_SECONDS = 2.0
# on CPUs with bf16 it asks for an optional package, which the lock leaves out on purpose
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def main(stage: str, run: Callable[[], None]) -> None:
    """Run one stage in the current folder and end the process with its exit code."""
    try:
        outlive_reader()
        die_with_parent()
        _refuse_foreign_code()
        _refuse_changed_code(stage)
        say(f"{stage}: start")
        run()
    except InputError as error:
        _die(f"{stage}: refused.\n{error}", EXIT_INPUT)
    except Stopped as error:
        _die(f"{stage}: stopped, can resume. {error}", EXIT_STOPPED)
    except KeyboardInterrupt:
        _die(f"{stage}: interrupted; `dvc repro` runs it again", EXIT_INTERRUPTED)
    except FileNotFoundError as error:
        if Path("dvc.yaml").exists():
            _fault(stage)
        # `dvc queue kill --force` ends DVC, and the worker clears the folder while train finishes
        # its step: no fault of ours, and the checkpoints lie elsewhere
        _die(f"{stage}: stopped, can resume. This folder was removed ({error})", EXIT_STOPPED)
    except Exception:  # noqa: BLE001  the edge: keeps the traceback and exits 70
        _fault(stage)
    sys.exit(0)


def _fault(stage: str) -> NoReturn:
    traceback.print_exc()
    _die(f"{stage}: a fault of hashtune, not of your input (traceback above).", EXIT_FAULT)


class _Lenient(io.FileIO):
    """A descriptor whose reader may go away: what is written after that goes nowhere."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            return len(memoryview(data).cast("B"))


def outlive_reader() -> None:
    """Let no broken pipe end a stage: Ctrl-C in `dvc repro | tee log` ends tee first, and the next
    line of ours must not stand between this step and its checkpoint. A stream that somebody has
    already replaced is theirs."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is not getattr(sys, f"__{name}__"):
            continue
        lenient = io.BufferedWriter(_Lenient(descriptor, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(lenient, encoding="utf-8", line_buffering=True))


def _die(text: str, code: int) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    sys.exit(code)


def _refuse_foreign_code() -> None:
    fix = "run stages through dvc.yaml, whose commands set PYTHONPATH=src"
    if findings := foreign_code(Path(), fix=fix):
        raise InputError(findings)


def _refuse_changed_code(stage: str) -> None:
    """Refuse code or libraries other than those `code` recorded for this stage: with `-s`, or after
    a `pip install`, DVC would file their results under the old code's hash."""
    record = Path("build/code") / f"{stage}.json"
    if stage == "code" or not record.is_file():
        return
    recorded = writers.read_json(record)
    findings = environment_findings(recorded["packages"], recorded["packages"])
    if closure(f"hashtune.stages.{stage}", Path("src")).modules != recorded["modules"]:
        findings.append(
            Finding("changed-code", "src changed since", file=str(record), fix="dvc repro code")
        )
    if findings:
        raise InputError(findings)


def say(text: str) -> None:
    """One line for the person who watches."""
    print(text, flush=True)


def progress(items: Iterable[Item], *, total: int, label: str) -> Iterator[Item]:
    """Yield the items; once two seconds have passed, say how far it is and how long it will take.

    A line at most every second on a terminal, every ten seconds in a log.
    """
    started = last = time.monotonic()
    pause = 1.0 if sys.stdout.isatty() else 10.0
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - started > PROGRESS_SECONDS and now - last > pause:
            last = now
            left = (now - started) / done * (total - done)
            filled = 24 * done // max(1, total)
            bar = "#" * filled + "." * (24 - filled)
            say(f"  {label} [{bar}] {done}/{total}, about {left:.0f} s left")
        yield item


def closing_table(title: str, rows: Mapping[str, object]) -> None:
    """A stage's closing words: one aligned line per fact."""
    say(f"{title}")
    width = max((len(key) for key in rows), default=0)
    for key, value in rows.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        say(f"  {key:<{width}}  {shown}")


def write_report(stage: str, report: Mapping[str, Any]) -> None:
    """Write reports/<stage>.json: small, deterministic metrics that live in Git."""
    _write(Path("reports") / f"{stage}.json", report)


def write_machine(stage: str, measured: Mapping[str, Any], belongs_to: Path) -> None:
    """Write reports/machine/<stage>.json: what this machine measured, apart from every output.

    `belongs_to` is the output file the figures belong to; its sha256 goes along, so that a reader
    can drop the figures of another run.
    """
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    if "torch" in sys.modules:
        versions["torch"] = str(sys.modules["torch"].__version__)
    record = {
        "device": _device_name(),
        "cores": os.cpu_count(),
        "versions": versions,
        "output": belongs_to.as_posix(),
        "output_sha256": writers.sha256_file(belongs_to),
        **measured,
    }
    _write(MACHINE / f"{stage}.json", record)


def _write(file: Path, value: Mapping[str, Any]) -> None:
    folders.remove_leftovers(file)  # DVC runs a stage once at a time in a clone
    writers.write_json(file, value)


def _device_name() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # a GPU that this process used
        return str(torch.cuda.get_device_name())
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def _cpuinfo() -> Sequence[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
