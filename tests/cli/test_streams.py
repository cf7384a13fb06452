"""What commands print on: pipes, full disks, closed outputs, colours, and what a model says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hashtune.cli import streams

MAIN = "import sys; from hashtune.cli.main import main; sys.exit(main(sys.argv[1:]))"


def shell(folder: Path, root: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `hashtune` is the command."""
    text = f"hashtune() {{ {sys.executable} -c '{MAIN}' \"$@\"; }}; {line}"
    env = {
        "PYTHONPATH": str(root / "src"),
        "HASHTUNE_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "PATH": os.environ["PATH"],
    }
    command = ["bash", "-c", text]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_full_disk_is_told_in_one_finding(outputs: Path, root: Path) -> None:
    done = shell(outputs, root, "hashtune inspect > /dev/full")
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard output cannot be written: No space left on device [output]" in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_a_full_disk_under_the_help_and_under_what_is_told(outputs: Path, root: Path) -> None:
    done = shell(outputs, root, "hashtune inspect --help > /dev/full")
    assert done.returncode == 2 and done.stderr.count("[output]") == 1
    done = shell(outputs, root, "hashtune inspect -n 0 2> /dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_closed_output_and_a_closed_pipe_are_no_fault(outputs: Path, root: Path) -> None:
    for line in ("hashtune inspect >&-", "hashtune inspect | true; exit ${PIPESTATUS[0]}"):
        done = shell(outputs, root, line)
        assert (done.returncode, done.stderr) == (0, ""), line
    done = shell(outputs, root, "hashtune inspect -n 0 2>&- >&-")
    assert done.returncode == 2


def test_a_terminal_of_another_encoding_gets_numbers(outputs: Path, root: Path) -> None:
    done = shell(outputs, root, "PYTHONIOENCODING=ascii hashtune inspect -n 1")
    assert done.returncode == 0
    assert done.stdout.startswith("\\u2500")


def test_colours_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert streams.colored({"TERM": "xterm"}, asked=False)
    assert streams.colored({"NO_COLOR": ""}, asked=False)  # empty: not set, says no-color.org
    assert not streams.colored({"NO_COLOR": "1"}, asked=False)
    assert not streams.colored({"TERM": "dumb"}, asked=False)
    assert streams.colored({"NO_COLOR": "1"}, asked=True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert not streams.colored({}, asked=False)


def test_an_answer_keeps_its_lines_and_obeys_nothing() -> None:
    assert streams.harmless("a\n b\x1b[2J\r") == "a\n b\\x1b[2J\\x0d"
