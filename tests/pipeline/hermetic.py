"""Run stages with nothing but what dvc.yaml gives them, and note what else they reach for.

usage: python hermetic.py REPORT STAGE=FOLDER ...        (PYTHONPATH: folders of src and of plants)

Each folder holds a stage's declared inputs alone, so an undeclared file of the project is not
there. What lies outside is seen by an audit hook (what C code opens by itself is not); so are the
network and other programs. Names of environment variables are noted where our own code asks.
"""

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

INSTALLED = ("/usr", "/lib", "/opt", "/etc/ssl", "/etc/mime.types", "/proc", "/sys", "/dev")
INSTALLED += (sys.prefix, sys.base_prefix)


class Watch:
    """What the stage that runs now reaches for."""

    def __init__(self) -> None:
        self.root: Path | None = None
        self.found: set[str] = set()

    def event(self, name: str, arguments: tuple[object, ...]) -> None:
        if self.root is None:
            return
        if name == "open" and isinstance(arguments[0], str | bytes):
            self.opened(Path(os.fsdecode(arguments[0])).absolute())
        elif name in ("socket.connect", "socket.bind"):
            self.found.add(f"network: {arguments[1]}")
        elif name == "socket.getaddrinfo":
            self.found.add(f"network: {arguments[0]}")
        elif name in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            self.found.add(f"program: {arguments[0]}")

    def opened(self, path: Path) -> None:
        given = [os.environ[name] for name in ("HASHTUNE_HOME", "TMPDIR")]
        known = (str(self.root), *given, *INSTALLED, *sys.path)
        if not str(path).startswith(known) and "__pycache__" not in path.parts:
            self.found.add(f"file: {path}")

    def variable(self, name: object) -> None:
        """Called for each lookup; counts when code of the project asks."""
        frame = sys._getframe(2)
        while frame.f_back and frame.f_globals.get("__name__") in ("os", "_collections_abc"):
            frame = frame.f_back
        if self.root is not None and str(frame.f_globals.get("__name__")).startswith("hashtune"):
            self.found.add(f"variable: {name}")


class Environment(dict):
    """os.environ that tells who is asked for."""

    def __init__(self, watch: Watch, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.watch = watch

    def __getitem__(self, name: str) -> str:
        self.watch.variable(name)
        return super().__getitem__(name)

    def get(self, name: str, default: str | None = None) -> str | None:
        self.watch.variable(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.watch.variable(name)
        return super().__contains__(name)


def main(report: str, *pairs: str) -> None:
    watch = Watch()
    sys.addaudithook(watch.event)
    # child processes keep the true one: it is the C library's
    os.environ = Environment(watch, os.environ)  # noqa: B003
    found: dict[str, list[str]] = {}
    for stage, folder in (pair.split("=") for pair in pairs):
        module = importlib.import_module(f"hashtune.stages.{stage}")
        os.chdir(folder)
        watch.root, watch.found = Path(folder), set()
        try:
            module.run()
        finally:
            watch.root = None
        found[stage] = sorted(watch.found)
    Path(report).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
