"""A DVC remote behind a socket: a clone elsewhere, a lost object, a damaged one, `verify`."""

import hashlib
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

DATA = "data/triage/train.jsonl"
ROWS = "build/pack/train.parquet"


@contextmanager
def serving(folder):
    """The URL of a server over `folder`, in a process of its own that ends with the block."""
    folder.mkdir()
    command = [sys.executable, str(Path(__file__).parent / "webdav.py"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"webdav://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@contextmanager
def shared(toy, folder):
    """The toy with its training data under DVC, pushed to a server over `folder`."""
    with serving(folder) as url:
        toy.git("rm", "-q", "--cached", DATA)
        toy.run("dvc", "add", "-q", DATA)
        toy.edit(".dvc/config", "[core]\n", "[core]\n    remote = shared\n")
        with (toy.path / ".dvc/config").open("a") as config:
            config.write(f"['remote \"shared\"']\n    url = {url}\n    verify = true\n")
        # data/ lists other files now, which concerns `spec` alone
        assert set(toy.stages(toy.run("dvc", "repro"))) <= {"spec"}
        toy.git("add", "-A")
        toy.git("commit", "-q", "-m", "shared")
        toy.run("dvc", "push")
        yield


def stored(folder, toy, file):
    """Where the server keeps the object of a file of the toy, and the md5 that names it."""
    md5 = hashlib.md5((toy.path / file).read_bytes()).hexdigest()
    return folder / "files/md5" / md5[:2] / md5[2:], md5


def pull_what_is_there(other):
    """Pull while an object is missing; DVC may trip over it first and leave the rest out."""
    for _ in range(5):
        output = other.run("dvc", "pull", code=None)
        if "failed to pull data from the cloud" in output:
            return output
    raise AssertionError(output)


def test_a_clone_elsewhere_runs_nothing_and_fills_what_the_remote_lost(toy, tmp_path):
    with shared(toy, tmp_path / "server"):
        other = toy.clone(tmp_path / "whole")
        assert not (other.path / DATA).exists()
        other.run("dvc", "pull")
        assert other.stages(other.run("dvc", "repro")) == []
        assert other.adapter_sha256() == toy.adapter_sha256()
        assert other.stages(other.run("dvc", "repro", "-f", "-s", "gate")) == ["gate"]
        assert other.git("status", "--porcelain") == ""

        lost, md5 = stored(tmp_path / "server", toy, ROWS)
        lost.unlink()
        other = toy.clone(tmp_path / "lost")
        assert f"failed to transfer '{md5}'" in pull_what_is_there(other)
        assert not (other.path / DATA).exists()  # DVC checks nothing out
        other.run("dvc", "checkout", "--allow-missing")  # what it did download
        assert other.stages(other.run("dvc", "repro")) == ["pack"]
        assert other.git("status", "--porcelain") == ""
        # DVC takes a folder whose list is in the remote for whole: the list goes, then push fills
        outs = yaml.safe_load((toy.path / "dvc.lock").read_text())["stages"]["pack"]["outs"]
        (folder,) = (out["md5"] for out in outs if out["path"] == "build/pack")
        (lost.parent.parent / folder[:2] / folder[2:]).unlink()
        other.run("dvc", "push")
        assert lost.is_file()


@pytest.mark.proof
def test_a_damaged_object_is_refused_and_verify_fetches_the_whole_one(toy, tmp_path):
    with shared(toy, tmp_path / "server"):
        kept, _ = stored(tmp_path / "server", toy, DATA)
        whole = kept.read_bytes()
        kept.unlink()
        kept.write_bytes(whole.replace(b"invoice", b"Invoice", 1))  # planted
        other = toy.clone(tmp_path / "first")
        assert "Checkout failed" in other.run("dvc", "pull", DATA, code=1)
        assert not (other.path / DATA).exists()
        assert "[no-data]" in other.run("hashtune", "verify", code=2)

        # a remote that does not verify hands the damage over; then the pin in the spec refuses it
        other.edit(".dvc/config", "verify = true", "verify = false")
        assert "unverified-remote" in other.run("hashtune", "doctor", code=None)
        other.run("dvc", "pull", DATA)
        assert b"Invoice" in (other.path / DATA).read_bytes()
        assert "[pin-differs]" in other.run("hashtune", "check", code=2)
        assert "[no-data]" in other.run("hashtune", "verify", code=2)

        kept.write_bytes(whole)
        toy.run("hashtune", "compose", "experiment=toy", "determinism.threads=2")
        toy.git("commit", "-q", "-a", "-m", "planted")  # ends the rebuild early, after the data
        other = toy.clone(tmp_path / "again")
        other.run("hashtune", "verify", code=1)
        report = json.loads((other.path / "reports/verify.json").read_text())
        assert report["first_difference"]["stage"] == "spec"
        assert report["cause"]["kind"] == "threads"
