"""A checkout for real stages on one file of the fuzz: code, spec, held-out rows and a base."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fuzz.case import Case
from fuzz.templates import LIMIT, TEMPLATES
from fuzz.tokens import DATE, synthetic
from hashtune import writers
from hashtune.spec.load import read_params
from hashtune.store.manifest import manifest_json

ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = ("eval", "test")


class Checkout:
    """A folder with the code, held-out rows and a base: a stage refuses code outside its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        writers.write_json(folder / "manifest.json", manifest_json(synthetic()))
        self.said = (folder / "said.txt").open("w+b")
        self.server = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "bench/fuzz/server.py")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": "src", "HASHTUNE_PROCESSES": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
        )

    def run(self, stage: str) -> int:
        """The exit code of the stage; its words are in `said`."""
        assert self.server.stdin and self.server.stdout
        self.said.truncate(0)
        self.server.stdin.write(f"{stage}\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def outputs(self, stage: str) -> list[bool]:
        """Whether its output folder and its report are there."""
        names = (f"build/{stage}", f"reports/{stage}.json")
        return [(self.folder / name).exists() for name in names]

    def done(self, stage: str) -> bool:
        """Whether there are outputs to read."""
        return all(self.outputs(stage))

    def words(self) -> str:
        """The end of what the last stage said."""
        self.said.seek(0)
        return self.said.read().decode("utf-8", "replace").strip("\0")[-1500:]

    def close(self) -> None:
        """End the server."""
        assert self.server.stdin
        self.server.stdin.close()
        self.server.wait()
        self.said.close()

    def lay_out(self, case: Case, action: str) -> None:
        """Write the spec and the files for this case; what earlier ones left goes."""
        for name in ("build", "reports"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "build/base").mkdir(parents=True)
        shutil.copy2(self.folder / "manifest.json", self.folder / "build/base/manifest.json")
        writers.write_json(self.folder / "params.yaml", _params(case, action))
        (self.folder / "data.bin").write_bytes(case.data)
        (self.folder / "template.jinja").write_bytes(TEMPLATES[case.template].encode())
        for name in HELD_OUT:
            (self.folder / f"{name}.jsonl").write_bytes(_held_out(case, name))


def _held_out(case: Case, name: str) -> bytes:
    """One row that every template takes."""
    answer = "<think>\nhm\n</think>\n\nyes" if case.template == "opens" else "yes"
    messages = [{"role": "user", "content": name}, {"role": "assistant", "content": answer}]
    return writers.canonical_json({"messages": messages}, indent=None).encode()


def _params(case: Case, action: str) -> dict[str, Any]:
    params = read_params(ROOT / "params.yaml")
    source = {
        "name": "fuzz",
        "uri": "data.bin",
        "sha256": writers.sha256_bytes(case.data),
        "format": case.format,
        "schema": case.schema,
        "fields": case.fields,
    }
    params["data"]["sources"] = [{**params["data"]["sources"][0], **source}]
    params["data"]["replay"] |= {"uri": None, "sha256": None, "share": 0.0}
    for name in HELD_OUT:
        held_out = {"uri": f"{name}.jsonl", "sha256": writers.sha256_bytes(_held_out(case, name))}
        params["data"][name] |= held_out | {"format": "jsonl", "schema": "messages", "fields": {}}
    params["data"] |= {"max_rows": None, "max_seq_len": LIMIT, "over_length": "drop"}
    params["cleaning"] |= {"on_bad_row": action, "max_drop_share": 1.0, "deduplicate": "none"}
    params["regression"]["suites"] = []
    params["tokenizer"] |= {
        "chat_template": "base" if case.template == "base" else "template.jinja",
        "sha256": writers.sha256_bytes(TEMPLATES[case.template].encode()),
        "date": DATE,
    }
    return params
