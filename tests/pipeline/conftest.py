"""One toy pipeline for all tests here: every real stage, under DVC, in a temporary clone.

The fixture costs one `dvc repro`, and each process a copy of it (another folder, the same bits);
each test gets its process's clone back as it was.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


@dataclass(frozen=True)
class Toy:
    """A clone with the toy spec, its outputs built and committed."""

    path: Path
    home: Path

    def run(self, *command: str, code: int | None = 0, env: dict[str, str] | None = None) -> str:
        """Run a command in the clone; stdout and stderr together. `code` None accepts any."""
        # the command line refuses code of another checkout; stages set their own PYTHONPATH
        own = {"PYTHONPATH": "src"} if command[0] == "hashtune" else {}
        done = subprocess.run(
            command,
            cwd=self.path,
            env={**self.environment(), **own, **(env or {})},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        output = done.stdout + done.stderr
        if code is not None:
            assert done.returncode == code, f"{command} ended with {done.returncode}:\n{output}"
        return output

    def start(self, *command: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a command in a process group of its own; stdout and stderr in one pipe. A suite in
        the background hands on that Ctrl-C and a closed terminal are ignored: not this command."""
        return subprocess.Popen(
            ["env", "--default-signal=INT,HUP", *command],
            cwd=self.path,
            env={**self.environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        """A small environment: nothing of the caller's but PATH and what Python needs."""
        bin_folder = str(Path(sys.executable).parent)
        return {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "HASHTUNE_HOME": str(self.home / "store"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "DVC_NO_ANALYTICS": "1",
            "GIT_AUTHOR_NAME": "toy",
            "GIT_AUTHOR_EMAIL": "toy@example.com",
            "GIT_COMMITTER_NAME": "toy",
            "GIT_COMMITTER_EMAIL": "toy@example.com",
            "LANG": "C.UTF-8",
        }

    def git(self, *arguments: str) -> str:
        """Run git in the clone."""
        return self.run("git", *arguments)

    def clone(self, folder: Path) -> "Toy":
        """A clone of what is committed, at another path, with an empty cache and store."""
        other = Toy(folder / "another/place", folder / "another-home")
        other.home.mkdir(parents=True)
        self.git("clone", "-q", str(self.path), str(other.path))
        return other

    def restore(self) -> None:
        """Back to the committed state, outputs included, without experiments."""
        self.forget_queue()
        for ref in self.git("for-each-ref", "--format=%(refname)", "refs/exps").split():
            self.git("update-ref", "-d", ref)
        self.git("checkout", "-q", "-f", "main")
        self.git("reset", "-q", "--hard", "built")
        self.git("clean", "-qfd")
        self.run("dvc", "checkout", "-q")

    def forget_queue(self) -> None:
        """No task is left: one whose worker was killed counts as running for ever, and a later
        `--run-all` would wait for it."""
        shutil.rmtree(self.path / ".dvc/tmp/exps", ignore_errors=True)

    @staticmethod
    def stages(output: str) -> list[str]:
        """Names of the stages that a DVC command executed, in order."""
        return re.findall(r"Running stage '(\w+)'", output)

    def report(self, stage: str) -> dict[str, Any]:
        """The report of a stage."""
        text = (self.path / f"reports/{stage}.json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    def adapter_sha256(self) -> str:
        """sha256 of the adapter's weights as they lie in the workspace."""
        weights = self.path / "build/train/adapter/adapter_model.safetensors"
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that must occur in a file of the clone."""
        path = self.path / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")


def build(toy: Toy, root: Path) -> None:
    """Copy the working tree, compose the toy spec, commit, build, commit."""
    toy.home.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (
            (root / name).is_file()
            and name not in ("dvc.lock",)
            and not name.startswith("reports/")
        ):
            (toy.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, toy.path / name)
    toy.git("init", "-q", "-b", "main")
    toy.git("add", "-A")
    toy.run("hashtune", "compose", "experiment=toy")
    toy.git("add", "-A")
    toy.git("commit", "-q", "-m", "toy")
    output = toy.run("dvc", "repro")
    assert len(toy.stages(output)) == 14, output
    toy.git("add", "-A")
    toy.git("commit", "-q", "-m", "built")
    toy.git("tag", "built")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path, worker_id: str) -> Toy:
    """A copy of the toy pipeline; the first process that needs one builds it for all."""
    own = tmp_path_factory.getbasetemp()
    shared = (own if worker_id == "master" else own.parent) / "pipeline"
    with FileLock(f"{shared}.lock"):
        if not (shared / "done").exists():
            shutil.rmtree(shared, ignore_errors=True)
            build(Toy(shared / "clone", shared / "home"), root)
            (shared / "done").touch()
    shutil.copytree(shared, own / "copy", symlinks=True)
    return Toy(own / "copy/clone", own / "copy/home")


@pytest.fixture
def toy(built: Toy) -> Toy:
    """The built clone, restored."""
    built.restore()
    return built
