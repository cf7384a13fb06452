"""A small run by hand: five steps, two test items, two suite items, hostile answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.writers import sha256_file

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
EVAL = [(1, 2.0), (3, 1.0), (5, 1.5)]


def write(root: Path, name: str, text: str) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def write_rows(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    write(root, name, "".join(json.dumps(row) + "\n" for row in rows))


def task(name: str, answer: str, score: float) -> dict[str, Any]:
    return {"id": name, "answer": answer, "reference": "yes", "scores": {"a": score, "b": 1.0}}


def suite(name: str, part: str, output: str, score: float) -> dict[str, Any]:
    return {"id": name, "slice": part, "output": output, "score": score}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run's folder; the arguments vary it."""

    def make(name: str = "run", *, lr: float = 0.1, seed: int = 1, score: float = 0.5) -> Path:
        root = tmp_path / name
        params = {
            "run": {"experiment": "tiny"},
            "conf_sha256": "x",
            "eval_gate": {"confidence": 0.95},
            "optim": {"lr": lr},
            "seed": seed,
            "regression": {"suites": [{"uri": "data/suite.jsonl"}]},
        }
        write(root, "params.yaml", json.dumps(params))
        rule = {
            "name": "task.a.gain_over_base",
            "verdict": "pass",
            "meaning": "a gains < 1 & more",
            "value": 0.25,
            "bound": 0.1,
            "threshold": 0.05,
        }
        gate = {"verdict": "pass", "summary": "passes all 1 rules", "rules": [rule]}
        reports = {
            "gate": gate,
            "evaluate": {"task": {"scores": {"a": score, "b": 1.0}}},
            "regress": {"suites": {"score": 0.75}},
            "train": {"adapter_step": 3, "eval_loss": 1.0, "adapter_sha256": "f" * 64},
            "plan": {"needed_gb": 2.5, "buckets_bytes": {"weights": 2e9, "adapter": 5e8}},
        }
        for stage, report in reports.items():
            write(root, f"reports/{stage}.json", json.dumps(report))
        curves = "build/train/curves/plots/metrics"
        points = "".join(f"{step}\t{loss}\n" for step, loss in EVAL)
        write(root, f"{curves}/eval/loss.tsv", f"step\tloss\n{points}")
        write(root, f"{curves}/train/loss.tsv", "step\tloss\n1\t2.5\n2\t2.0\n")
        write_rows(
            *(root, "build/baseline/task.jsonl"),
            [task("t1", "no", 0.0), task("t2", "yes", 1.0)],
        )
        write_rows(
            *(root, "build/evaluate/task.jsonl"),
            [task("t1", HOSTILE, 1.0), task("t2", "yes", 1.0)],
        )
        write_rows(root, "build/baseline/suites.jsonl", [suite("s1", "facts", "Paris", 1.0)])
        write_rows(root, "build/regress/suites.jsonl", [suite("s1", "facts", "Rome", 0.0)])
        write_rows(root, "data/suite.jsonl", [{"id": "s1", "prompt": "Capital of France?"}])
        weights = write(root, "build/train/adapter/adapter_model.safetensors", "weights")
        machine = {
            "output": "build/train/adapter/adapter_model.safetensors",
            "output_sha256": sha256_file(weights),
            "peak_memory_gb": 2.25,
        }
        write(root, "reports/machine/train.json", json.dumps(machine))
        return root

    return make
