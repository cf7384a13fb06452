"""What `verify` starts ends with it: no DVC trains on, and the folder is still when it is removed.

A module `dvc` in the folder stands for DVC: `python -m dvc` takes it from there.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hashtune.lineage import rebuild

FAKE = """
import os, signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(0.5)  # as train finishes its step
    Path("checkpoint").touch()
    sys.exit(1)
if "patient" in sys.argv:
    signal.signal(signal.SIGTERM, end)
Path("pid.tmp").write_text(str(os.getpid()))
Path("pid.tmp").rename("pid")
print("Running stage 'train':", flush=True)
time.sleep(60)
"""
VERIFY = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a suite under nohup hands on that it is ignored
from pathlib import Path
from hashtune.lineage.rebuild import execute
folder = Path(sys.argv[1])
execute(folder, folder / "home", say=lambda line: None, enough=lambda run, line: None)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dvc").mkdir()
    (tmp_path / "dvc/__init__.py").touch()
    (tmp_path / "dvc/__main__.py").write_text(FAKE)
    yield tmp_path
    with suppress(OSError, ValueError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def until(condition, what):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_verify_that_dies_takes_its_dvc_along(folder, number):
    command = [sys.executable, "-c", VERIFY, str(folder)]
    with subprocess.Popen(command) as process:
        until((folder / "pid").exists, "no DVC")
        process.send_signal(number)
    pid = int((folder / "pid").read_text())
    until(lambda: not alive(pid), "DVC runs on without the verify that started it")


def test_an_interrupted_verify_waits_for_the_end_of_what_it_started(folder):
    def say(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild.execute(folder, folder / "home", "patient", say=say, enough=lambda run, line: None)
    assert (folder / "checkpoint").exists()  # else it may be written while the folder is removed


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_the_rebuild_has_a_cache_of_its_own_whatever_the_project_shares(tmp_path):
    """Planted: a shared cache in Git and in this clone; its results would be there already."""
    root = tmp_path / "project"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    for name in ("config", "config.local"):
        (root / ".dvc" / name).write_text(f"[cache]\n    dir = {tmp_path}/shared\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    rebuild.clone(root, rebuild.commit_of(root, "main"), tmp_path / "new", cache=None)
    assert rebuild.cache_of(tmp_path / "new") == tmp_path / "new/.dvc/cache"
