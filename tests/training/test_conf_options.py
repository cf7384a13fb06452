"""Every file in conf/ composes, loads and trains three steps on the toy; those that decide how
training goes do it twice, to the same bytes. A new file or group is among them by itself.

That a file's values are those that are loaded: tests/spec/test_conf_files.py.
"""

from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import yaml

from hashtune import records, writers
from hashtune.errors import InputError
from hashtune.evaluation.models import load_evaluated
from hashtune.records import Row
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import validate
from hashtune.spec.pins import check_pins
from hashtune.spec.schema import Spec
from hashtune.stages import train
from hashtune.store.loader import resolve
from hashtune.store.manifest import manifest_json, read_manifest
from hashtune.training.adapter import weights_file
from hashtune.training.plan import Plan
from hashtune.training.signals import StopRequest

ROOT = Path(__file__).parents[2]
GROUPS = ("optim", "schedule", "method", "quantization", "activations")
CUDA_ONLY = {"optim=paged_adamw_8bit", "optim=paged_adamw_32bit"}
ALONGSIDE = {  # what a choice needs beside it
    "quantization=int8": ["method.type=qlora"],
    "quantization=nf4": ["method.type=qlora"],
    "method=prompt": ["data.packing=false"],
    "method=prefix": ["data.packing=false"],
}
SINGLE = {"method=prompt", "method=prefix"}  # rows of one document
NO_RANK = SINGLE | {"method=full"}
OPTIONS = [f"{f.parent.name}={f.stem}" for f in sorted((ROOT / "conf").glob("*/*"))]
CHOICES = [choice for choice in OPTIONS if choice.partition("=")[0] in GROUPS]
OTHERS = [choice for choice in OPTIONS if choice not in CHOICES]
VALUES = [  # what conf/config.yaml sets itself, by the schema
    f"{name}={value}"
    for name, field in Spec.model_fields.items()
    if get_origin(field.annotation) is Literal
    for value in get_args(field.annotation)
]
CUDA_VALUES = {"precision=tf32", "device=cuda"}
TOY = ["experiment=toy", "determinism.threads=1", "checkpoint.select=best"]


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def checkout(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs of base and pack for three steps on the synthetic base, in the current folder."""
    monkeypatch.setattr(train, "StopRequest", Stop)
    pinned = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None, "sha256": None}
    manifest = resolve(pinned, name="synthetic", say=lambda text: None)
    writers.write_json(train.MANIFEST, manifest_json(manifest))
    writers.write_json(train.CODE, {"modules": {}})
    write_rows(plan.rows, plan.eval_rows)
    steps = [
        {"step": n, "epoch": 1, "rows": list(rows), "trained_tokens": 0, "tokens": 0}
        for n, rows in enumerate(plan.steps[:3], start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", steps, records.step_schema())
    return tmp_path


def write_rows(*splits: Sequence[Row]) -> None:
    for name, rows in zip(("train", "eval"), splits, strict=True):
        dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in rows]
        writers.write_parquet(train.PACK / f"{name}.parquet", dicts, records.row_schema())


def as_one_document(row: Row) -> Row:
    return replace(row, example_ids=row.example_ids[:1], lengths=[sum(row.lengths)])


def composed(choice: str, *more: str) -> tuple[Spec, str]:
    with chdir(ROOT):  # where conf/ is stamped
        small = [] if choice in NO_RANK else ["method.r=2"]
        toy = [choice if choice.startswith("experiment=") else TOY[0], *TOY[1:]]
        text = compose(ROOT, [*toy, *small, *ALONGSIDE.get(choice, []), choice, *more])
    return validate(parse(text)), text


def test_no_file_is_left_out() -> None:
    conf = ROOT / "conf"
    files = {path for path in conf.rglob("*") if path.is_file()}
    tried = {conf / choice.replace("=", "/") for choice in CHOICES + OTHERS}
    assert files == {path.with_suffix(".yaml") for path in tried | {conf / "config"}}
    assert len(CHOICES) >= 26
    assert len(OTHERS) >= 19
    assert set(CHOICES) >= CUDA_ONLY | ALONGSIDE.keys()
    assert {"kernels=plain", "precision=fp16", *CUDA_VALUES} <= set(VALUES)


@pytest.mark.parametrize("choice", OTHERS + [v for v in VALUES if v not in CUDA_VALUES])
def test_the_other_files_compose_load_and_train_too(choice: str, checkout: Path) -> None:
    _, text = composed(choice)
    Path("params.yaml").write_text(text, encoding="utf-8")
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert (report["steps"], report["skipped_steps"]) == (3, 0)
    assert report["loss_last"] != report["loss_first"]


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice not in CUDA_ONLY])
def test_composes_loads_and_trains_three_steps(choice: str, checkout: Path, plan: Plan) -> None:
    spec, text = composed(choice)
    group, _, name = choice.partition("=")
    section = getattr(spec, group)
    assert name in [
        getattr(section, key, None) for key in ("name", "type", "variant", "checkpointing")
    ]
    Path("params.yaml").write_text(text, encoding="utf-8")
    if choice in SINGLE:
        with pytest.raises(InputError, match="4 rows hold several documents, row 0 first"):
            train.run()
        write_rows(
            *([as_one_document(row) for row in rows] for rows in (plan.rows, plan.eval_rows))
        )
    train.run()
    first = writers.read_json(Path("reports/train.json"))
    assert (first["steps"], first["skipped_steps"]) == (3, 0)
    assert first["loss_last"] != first["loss_first"]  # layers moved: train refuses the others
    weights = weights_file(train.OUT / "adapter").read_bytes()
    train.run()
    assert weights_file(train.OUT / "adapter").read_bytes() == weights


@pytest.mark.parametrize(
    ("choice", "stored"), [("method=prompt", "nf4"), ("method=prefix", "int8")]
)
def test_virtual_tokens_train_over_a_quantised_base(
    choice: str, stored: str, checkout: Path, plan: Plan
) -> None:
    """Trained, written, proven against the base it was trained on, and loaded by evaluation."""
    spec, text = composed(choice, f"quantization={stored}")
    assert check_pins(spec, ROOT) == []
    Path("params.yaml").write_text(text, encoding="utf-8")
    write_rows(*([as_one_document(row) for row in rows] for rows in (plan.rows, plan.eval_rows)))
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert report["route"].startswith(f"fp32 adapter, {stored} base, ")
    manifest = read_manifest(train.MANIFEST)
    model = load_evaluated(manifest, train.OUT / "adapter", dtype="fp32", threads=1)
    assert model.virtual_tokens == spec.method.virtual_tokens


@pytest.mark.parametrize("choice", sorted(CUDA_VALUES))
def test_a_value_that_needs_cuda_composes_and_is_refused_without(
    choice: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _, text = composed(choice)
    Path("params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        train.run()
    (finding,) = caught.value.findings
    assert finding.field == choice.partition("=")[0]
    assert not train.OUT.exists()


@pytest.mark.parametrize("choice", sorted(CUDA_ONLY))
def test_what_needs_cuda_composes_and_is_refused_by_name(choice: str, checkout: Path) -> None:
    _, text = composed(choice)
    Path("params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        train.run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("cuda-only", "optim.name")
    assert not train.OUT.exists()
    assert yaml.safe_load(text)["optim"]["name"] in str(finding)
