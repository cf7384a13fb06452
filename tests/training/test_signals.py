"""Stop requests in real processes: SIGTERM, SIGINT, SIGHUP, and the death of the parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
CHILD = """
import sys, time
from pathlib import Path
from hashtune import frame
from hashtune.training.signals import StopRequest
stop = StopRequest()
assert not stop
frame.outlive_reader()
frame.die_with_parent()
stop.install()
folder = Path(sys.argv[1])
(folder / "ready").touch()
end = time.monotonic() + 60
while not stop and time.monotonic() < end:
    time.sleep(0.02)
for number in range(3):  # their reader may be gone, or go between two of them
    print("a line after the request", flush=True)
    print("a warning after it", file=sys.stderr, flush=True)
    time.sleep(0.05)
(folder / "ended.tmp").write_text(str(stop.signal))
(folder / "ended.tmp").rename(folder / "ended")
"""
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
time.sleep(60)
"""


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_lines_to_a_reader_that_has_gone_go_nowhere(tmp_path: Path) -> None:
    """The reader goes before the request (both pipes), so that every line of the child fails."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        wait_for(tmp_path / "ready")
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        child.stderr.close()
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=60)
    assert child.returncode == 0
    assert (tmp_path / "ended").read_text() == "SIGTERM"


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.02)


HANGUP = "import signal\nsignal.signal(signal.SIGHUP, signal.{})\n"  # whatever started the suite


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_request_not_an_end(number: signal.Signals, tmp_path: Path) -> None:
    with start(HANGUP.format("SIG_DFL") + CHILD, str(tmp_path)) as child:
        wait_for(tmp_path / "ready")
        child.send_signal(number)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert (tmp_path / "ended").read_text() == number.name
    assert f"{number.name}: finishing this step, then a checkpoint" in out


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    with start(HANGUP.format("SIG_IGN") + CHILD, str(tmp_path)) as child:
        wait_for(tmp_path / "ready")
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=60)
    assert (tmp_path / "ended").read_text() == "SIGTERM"
    assert "SIGHUP" not in out


def test_the_death_of_the_parent_stops_the_child(tmp_path: Path) -> None:
    """Killing only `dvc` leaves no orphan that trains on, nor one that a broken pipe ends."""
    with start(PARENT, CHILD, str(tmp_path)) as parent:
        wait_for(tmp_path / "ready")
        parent.kill()
        assert parent.stdout is not None
        parent.stdout.close()
    wait_for(tmp_path / "ended")
    assert (tmp_path / "ended").read_text() == "SIGTERM"
