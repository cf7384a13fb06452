"""The train stage on a tiny base in a temporary checkout: same bytes, resume, its identity."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune import records, writers
from hashtune.errors import InputError, Stopped
from hashtune.memory.shapes import read_shape
from hashtune.records import Row
from hashtune.spec.load import read_spec
from hashtune.spec.schema import Spec
from hashtune.stages import train
from hashtune.store.loader import load_base, resolve
from hashtune.store.manifest import manifest_json, read_manifest
from hashtune.store.numerics import set_fp32_products
from hashtune.training import loop as loops
from hashtune.training import start
from hashtune.training.adapter import WEIGHTS
from hashtune.training.documents import DOCUMENTS
from hashtune.training.model import Trainee
from hashtune.training.plan import Plan
from hashtune.training.signals import StopRequest
from hashtune.training.step import EvalResult, StepResult

PEAKS = {"fp32": 989.0, "tf32": 989.0, "bf16": 989.0, "fp16": 989.0}
SECTIONS: dict[str, Any] = {
    "base_model": {
        "name": "synthetic",
        "source": "synthetic",
        "repo": "tiny",
        "revision": "0",
        "file": None,
        "sha256": None,
        "init_adapter": None,
    },
    "method": {
        "type": "lora",
        "variant": "lora",
        "r": 2,
        "alpha": 4.0,
        "dropout": 0.1,
        "targets": ["q_proj"],
        "virtual_tokens": None,
    },
    "quantization": {"type": "none", "double_quant": False},
    "optim": {
        "name": "adamw",
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.0,
        "grad_clip": 1.0,
        "neftune_alpha": None,
        "master_weights": True,
    },
    "schedule": {
        "name": "linear",
        "warmup_fraction": 0.0,
        "warmup_steps": None,
        "min_lr_ratio": 0.1,
        "decay": None,
        "decay_fraction": None,
        "decay_start": None,
        "branch_from": None,
    },
    "batch": {
        "micro": 2,
        "grad_accum": 1,
        "world_size": 1,
        "attention": "mask",
        "layout": "rows",
    },
    "activations": {"checkpointing": "none", "offload": False},
    "precision": "fp32",
    "device": "cpu",
    "kernels": "plain",
    "seed": 7,
    "init_seed": 7,
    "tokenizer": {
        "chat_template": "base",
        "sha256": "0" * 64,
        "added_tokens": [],
        "template_kwargs": {},
        "date": "2024-01-01",
        "stops": [],
        "unstable": "error",
        "mismatch": "error",
        "special_in_content": "error",
        "system": "error",
    },
    "determinism": {"mode": "strict", "threads": 1},
    "checkpoint": {
        "every_steps": 2,
        "keep_last": 1,
        "eval_every_steps": 2,
        "select": "last",
        "early_stop_patience": None,
        "max_skipped_steps": 0,
        "samples": 1,
        "keep_stable": None,
    },
    "hardware": {
        "name": "box",
        "device": "cpu",
        "memory_gb": 16.0,
        "overhead_gb": 1.0,
        "peak_tflops": {"fp32": 0.1, "tf32": None, "bf16": 0.1, "fp16": 0.1},
        "bandwidth_gbs": None,
        "expected_utilisation": 0.6,
        "price_per_hour": 0.0,
        "currency": "USD",
    },
    "plan": {"rehearse": False, "probe_steps": 1, "margin": 0.15},
}


class Stop(StopRequest):
    """Leaves this process's signal handlers alone; fires once a step's line was said."""

    def install(self) -> None: ...


@pytest.fixture
def checkout(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(train, "StopRequest", Stop)
    manifest = resolve(
        {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None, "sha256": None},
        name="synthetic",
        say=lambda text: None,
    )
    writers.write_json(train.MANIFEST, manifest_json(manifest))
    writers.write_json(train.CODE, {"modules": {}})
    rows = {"train": plan.rows, "eval": plan.eval_rows}
    for name, kept in rows.items():
        dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in kept]
        writers.write_parquet(train.PACK / f"{name}.parquet", dicts, records.row_schema())
    steps = [
        {"step": n, "epoch": 1, "rows": list(rows), "trained_tokens": 0, "tokens": 0}
        for n, rows in enumerate(plan.steps, start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", steps, records.step_schema())
    write_params({})
    return tmp_path


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def products_put_back() -> Any:
    yield
    set_fp32_products("ieee")


def write_params(changes: dict[str, Any]) -> None:
    sections = {
        name: {**value, **changes.get(name, {})} if isinstance(value, dict) else value
        for name, value in SECTIONS.items()
    }
    flat = {name: value for name, value in changes.items() if not isinstance(value, dict)}
    Path("params.yaml").write_text(json.dumps(sections | flat))  # JSON is YAML


def spec() -> Spec:
    return read_spec(*SECTIONS)


def identity() -> str:
    return train.runs.train_identity(train._identity_parts(spec()))


def outputs() -> dict[str, bytes]:
    files = [*Path("build/train").rglob("*"), Path("reports/train.json")]
    return {path.as_posix(): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_base_with_broken_weights_is_refused_by_the_tensor(
    kernels: str, value: float, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the proofs, which would blame the fused parts, and before the first step."""

    def load(*arguments: Any, **settings: Any) -> Any:
        base = load_base(*arguments, **settings)
        with torch.no_grad():
            base.model.layers[1].mlp.down_proj.weight[0, 0] = value
        return base

    monkeypatch.setattr(start, "load_base", load)
    write_params({"kernels": kernels})
    with pytest.raises(InputError) as caught:
        train.run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("non-finite", "base_model")
    name = "model.layers.1.mlp.down_proj.weight"
    assert finding.message == f"1 tensors of the base hold NaN or infinity, first {name}"


def test_a_run_that_skipped_every_step_has_trained_nothing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = float("nan")
    skipped = StepResult(nan, nan, 0.0, nan, 1, 1, applied=False)
    monkeypatch.setattr(loops, "train_step", lambda *arguments, **settings: skipped)
    write_params({"checkpoint": {"max_skipped_steps": 10**9}})
    with pytest.raises(InputError, match="none of 6 steps had a finite loss") as caught:
        train.run()
    assert [(f.rule, f.field) for f in caught.value.findings] == [("non-finite", "base_model")]
    assert not (train.OUT / "adapter").exists()


def write_steps(steps: list[list[int]]) -> None:
    table = [
        {"step": n, "epoch": 1, "rows": rows, "trained_tokens": 0, "tokens": 0}
        for n, rows in enumerate(steps, start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", table, records.step_schema())


def test_a_plan_without_steps_is_refused(checkout: Path) -> None:
    write_steps([])
    with pytest.raises(InputError, match=r"the plan has no step \[no-trained-token\]"):
        train.run()


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": {"warmup_fraction": 1.0}},
        {"schedule": {"min_lr_ratio": 0.0}},
        {"checkpoint": {"early_stop_patience": 1, "select": "best"}},
    ],
)
def test_a_run_of_one_step_makes_its_update(changes: dict[str, Any], checkout: Path) -> None:
    write_steps([[0]])
    write_params(changes)
    train.run()
    report = json.loads(Path("reports/train.json").read_text())
    assert (report["steps"], report["adapter_step"], report["skipped_steps"]) == (1, 1, 0)
    assert [signal[-14:] for signal in report["signals"]] == ["[near-uniform]"]


@pytest.mark.parametrize("evaluated", [True, False])
def test_one_update_that_ruins_the_model_is_no_quiet_success(
    checkout: Path, evaluated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGD at 1e30: the weights are finite, and so is the loss of this base, whose norms bound the
    states; the planted loss is what a head as wide as a trained one's makes of them."""
    write_steps([[0]])
    if not evaluated:
        writers.write_parquet(train.PACK / "eval.parquet", [], records.row_schema())
    monkeypatch.setattr(loops, "evaluate_loss", lambda *_, **__: EvalResult(50.0, 0.0))
    write_params({"optim": {"name": "sgd", "beta1": 0.0, "lr": 1e30}})
    train.run()
    signals = json.loads(Path("reports/train.json").read_text())["signals"]
    said = "the eval loss is" if evaluated else "the loss of the first step's rows is"
    assert [f"{said} 50, far above" in signal for signal in signals].count(True) == 1
    assert [signal.endswith("[huge-weights]") for signal in signals].count(True) == 1


def test_a_last_update_to_nan_is_refused_without_eval_rows_too(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_steps([[0]])
    writers.write_parquet(train.PACK / "eval.parquet", [], records.row_schema())
    monkeypatch.setattr(loops, "evaluate_loss", lambda *_, **__: EvalResult(float("nan"), 0.0))
    with pytest.raises(InputError, match="the first step's loss after step 1 is nan") as caught:
        train.run()
    assert [(f.rule, f.field) for f in caught.value.findings] == [("non-finite", "optim.lr")]
    assert not (train.OUT / "adapter").exists()


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_a_first_row_of_one_token_is_no_measure_of_anything(
    checkout: Path, make_row: Callable[[int, list[int]], Row], kernels: str
) -> None:
    """Its query has one key, so that an adapter of q_proj changes none of its logits; and it has no
    target, so that fused and plain parts have no loss to compare."""
    rows = [make_row(0, [1]), make_row(1, [6]), make_row(2, [1, 1, 5])]
    dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in rows]
    writers.write_parquet(train.PACK / "train.parquet", dicts, records.row_schema())
    write_steps([[0, 1], [2, 1], [0, 2]])
    write_params({"kernels": kernels, "batch": {"attention": "documents"}})
    train.run()
    report = json.loads(Path("reports/train.json").read_text())
    assert (report["steps"], report["skipped_steps"]) == (3, 0)


def test_twice_the_same_bytes_and_no_resume_state_left(checkout: Path) -> None:
    train.run()
    first = outputs()
    assert sorted(first)[:2] == [
        "build/train/adapter/adapter_config.json",
        "build/train/adapter/adapter_model.safetensors",
    ]
    report = json.loads(first["reports/train.json"])
    assert (report["steps"], report["skipped_steps"]) == (6, 0)
    assert report["documents_apart"] == "proven before training"
    assert report["attention"] == "sdpa"
    samples = writers.read_jsonl(train.OUTPUTS["samples.jsonl"])
    assert [(s["step"], s["example"], s["tokens"]) for s in samples] == [
        (step, "e9.0", 5) for step in (2, 4, 6)
    ]
    (signal,) = report["signals"]  # of a random base: its losses stay near ln 512
    assert signal.startswith("step 6: the mean loss of the first 6 steps is 6.")
    assert signal.endswith("[near-uniform]")
    assert report["trainable_parameters"] == 2 * 2 * (64 + 64)  # 2 layers, q: A 2x64, B 64x2
    assert report["targets"] == {"q_proj": 2}
    assert report["route"] == "fp32 adapter, fp32 base, no autocast"
    assert report["adapter_sha256"] == writers.sha256_file(train.OUT / "adapter" / WEIGHTS)
    assert not any(str(checkout).encode() in data for data in first.values())
    folder = checkout / "home" / "runs" / identity()
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "result"]
    machine = writers.read_json(Path("reports/machine/train.json"))
    assert machine["output_sha256"] == report["adapter_sha256"]
    assert machine["peak_tflops"] == 0.1
    assert machine["mfu"] == pytest.approx(machine["model_tflops"] / 0.1)
    assert [line["step"] for line in writers.read_jsonl(train.LOG)] == [1, 6]
    write_params({"hardware": {"device": "cuda", "peak_tflops": PEAKS}})  # of another machine
    train.run()  # a forced rerun trains from step 1
    assert outputs() == first
    machine = writers.read_json(Path("reports/machine/train.json"))
    assert (machine["first_step_of_this_process"], machine["mfu"]) == (1, None)


def test_stopped_and_run_again_gives_the_same_bytes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train.run()
    straight = outputs()
    made: list[StopRequest] = []
    monkeypatch.setattr(train, "StopRequest", lambda: made.append(Stop()) or made[-1])
    said = train.frame.say

    def say(text: str) -> None:
        said(text)
        if text.startswith("  step 3/"):
            made[-1].signal = "SIGTERM"

    with monkeypatch.context() as patch:
        patch.setattr(train.frame, "say", say)
        with pytest.raises(Stopped, match="SIGTERM after step 3 of 6"):
            train.run()
    capsys.readouterr()
    write_params({"checkpoint": {"every_steps": 1}})  # how often is no part of the identity
    train.run()
    assert "resuming after step 3 from step-00000003" in capsys.readouterr().out
    assert outputs() == straight


def test_a_stop_after_the_last_step_keeps_the_state_for_a_dvc_that_is_gone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without DVC's record the next run trains; it must not begin at step 1."""
    train.run()
    straight = outputs()
    made: list[StopRequest] = []
    monkeypatch.setattr(train, "StopRequest", lambda: made.append(Stop()) or made[-1])
    write = train.write_adapter

    def stopped(*arguments: Any, **options: Any) -> None:
        made[-1].signal = "SIGTERM"
        write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(train, "write_adapter", stopped)
        with pytest.raises(Stopped, match="SIGTERM after the last step"):
            train.run()
    capsys.readouterr()
    train.run()
    assert "resuming after step 6 from step-00000006" in capsys.readouterr().out
    assert outputs() == straight
    folder = checkout / "home" / "runs" / identity()
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "result"]


def test_what_decides_the_bits_changes_the_identity(checkout: Path) -> None:
    seen = {"as is": identity()}
    changes: list[dict[str, Any]] = [
        {"base_model": {"init_adapter": {"path": "data/a", "sha256": "1" * 64}}},
        {"method": {"r": 4}},
        {"quantization": {"type": "nf4"}},
        {"optim": {"lr": 0.02}},
        {"optim": {"grad_clip": 2.0}},
        {"optim": {"neftune_alpha": 5.0}},
        {"schedule": {"min_lr_ratio": 0.2}},
        {"schedule": {"branch_from": {"path": "data/s", "sha256": "1" * 64}}},
        {"batch": {"micro": 1}},
        {"batch": {"attention": "documents"}},
        {"batch": {"layout": "length_grouped"}},
        {"activations": {"checkpointing": "full"}},
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "tf32"},
        {"device": "cuda"},
        {"precision": "bf16", "optim": {"master_weights": False}},
        {"seed": 8},
        {"init_seed": 8},
        {"determinism": {"threads": 2}},
        {"checkpoint": {"select": "best"}},
        {"checkpoint": {"early_stop_patience": 2}},
        {"checkpoint": {"eval_every_steps": 4}},
        {"checkpoint": {"max_skipped_steps": 1}},
        {"checkpoint": {"samples": 0}},
        {"checkpoint": {"keep_stable": 2}},
    ]
    for change in changes:
        write_params(change)
        seen[str(change)] = identity()
    write_params({})
    for path in (train.MANIFEST, train.CODE, *sorted(train.PACK.glob("*.parquet"))):
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        seen[path.name] = identity()
        path.write_bytes(before)
    assert len(seen) == 1 + len(changes) + 5
    assert len(set(seen.values())) == len(seen)


def test_a_pinned_adapter_is_continued_from_and_named(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.run()
    before = writers.read_json(Path("reports/train.json"))
    assert before["init_adapter"] is None
    Path("data").mkdir()
    (train.OUT / "adapter").rename("data/first")
    pin = {"path": "data/first", "sha256": before["adapter_sha256"]}
    write_params({"base_model": {"init_adapter": pin}})
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert report["init_adapter"] == before["adapter_sha256"]
    assert report["loss_first"] < before["loss_first"]  # it begins where the first one ended
    monkeypatch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
    write_params({"base_model": {"init_adapter": pin}, "method": {"r": 4}})
    with pytest.raises(InputError, match="has r 2, not 4"):
        train.run()


def test_init_seed_decides_the_init_and_seed_what_training_draws(checkout: Path) -> None:
    def begun(**seeds: int) -> tuple[dict[str, Any], torch.Tensor]:
        write_params(seeds)
        trainee = train.ready(spec()).trainee
        weights = {name: value.detach().clone() for name, value in trainee.parameters.items()}
        return weights, torch.rand(1)

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return all(one[name].equal(other[name]) for name in one)

    first, drawn = begun(seed=7, init_seed=7)
    weights, other_draw = begun(seed=8, init_seed=7)
    assert same(first, weights)
    assert drawn != other_draw
    weights, same_draw = begun(seed=7, init_seed=8)
    assert not same(first, weights)
    assert drawn == same_draw


def test_how_often_checkpoints_are_written_does_not(checkout: Path) -> None:
    before = identity()
    write_params({"checkpoint": {"every_steps": 1, "keep_last": 9}})
    assert identity() == before
    write_params({"hardware": {"peak_tflops": PEAKS}})
    assert identity() == before
    write_params({"plan": {"probe_steps": 0, "margin": 2.0, "rehearse": True}})
    assert identity() == before


def test_a_skipped_step_is_told_with_the_source_lines_of_prepare(
    checkout: Path, make_trainee: Callable[..., Trainee]
) -> None:
    row = {"id": "e1", "source": "triage", "line": 12, "group": None, "messages": "[]"}
    writers.write_parquet(train.PREPARED, [row], records.conversation_schema())
    aside = train._aside(spec(), make_trainee())
    assert aside.places(["e1.0", "e2.0"]) == {"e1.0": "triage:12"}


def test_a_leaking_backend_stops_before_training(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hashtune.training.attention import Probe

    monkeypatch.setattr(train, "run_probe", lambda *_: Probe(0.5, 0.0, 0.5, 1e-4, "sdpa"))
    with pytest.raises(InputError, match=r"attention backend 'sdpa' leaks.*attention-leak"):
        train.run()
    assert not train.OUT.exists()
    assert os.listdir(checkout / "home" / "runs" / identity()) == ["lock"]  # noqa: PTH208


@pytest.mark.parametrize("layout", ["length_grouped", "padding_free"])
def test_attention_by_document_and_layouts_train_the_same_bytes_twice(
    checkout: Path, layout: str
) -> None:
    train.run()
    by_mask = writers.read_json(Path("reports/train.json"))
    write_params(
        {"batch": {"attention": "documents", "layout": layout}, "method": {"dropout": 0.0}}
    )
    train.run()
    first = outputs()
    report = json.loads(first["reports/train.json"])
    assert report["documents_apart"] == "proven before training"
    assert (by_mask["attention"], report["attention"]) == ("sdpa", DOCUMENTS)
    assert report["loss_first"] == pytest.approx(by_mask["loss_first"], rel=1e-4)  # B is zero
    train.run()
    assert outputs() == first


def test_layers_that_never_moved_are_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(train.Loop, "_evaluate", lambda loop: _zero(loop.trainee))
    with pytest.raises(InputError, match=r"1/2 lora_B tensors moved; still zero: \S+\.lora_B\.w"):
        train.run()
    assert not (train.OUT / "adapter").exists()


def _zero(trainee: Trainee) -> None:
    name = next(name for name in trainee.parameters if "lora_B" in name)
    with torch.no_grad():
        trainee.parameters[name].zero_()


def test_the_report_gives_the_loss_of_the_adapter_not_of_the_last_step(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hashtune.training import loop as loops
    from hashtune.training.step import EvalResult

    losses = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(loops, "evaluate_loss", lambda *a, **k: EvalResult(next(losses), 0.5))
    write_params({"checkpoint": {"select": "best"}})
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert (report["adapter_step"], report["best_step"], report["eval_loss"]) == (2, 2, 1.0)
    assert report["steps"] == 6


def test_an_early_stop_is_in_the_report(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hashtune.training import loop as loops
    from hashtune.training.step import EvalResult

    losses = iter([1.0, 2.0])
    monkeypatch.setattr(loops, "evaluate_loss", lambda *a, **k: EvalResult(next(losses), 0.5))
    write_params({"checkpoint": {"early_stop_patience": 1}})
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert (report["steps"], report["stopped_early"], report["best_step"]) == (4, True, 2)
    metrics = writers.read_json(train.OUTPUTS["curves"] / "metrics.json")
    assert metrics["eval"]["since_best"] == 1


def test_settings_that_the_plan_cannot_hold_are_refused_before_anything_is_loaded(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    writers.write_parquet(train.PACK / "eval.parquet", [], records.row_schema())
    monkeypatch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
    write_params(
        {
            "schedule": {"warmup_fraction": None, "warmup_steps": 7},
            "checkpoint": {"early_stop_patience": 1},
        }
    )
    with pytest.raises(InputError) as caught:
        train.run()
    assert [(f.rule, f.field) for f in caught.value.findings] == [
        ("schedule-length", "schedule.warmup_steps"),
        ("no-eval", "checkpoint.early_stop_patience"),
    ]


def test_an_optimizer_that_needs_cuda_is_refused_and_leaves_nothing(checkout: Path) -> None:

    write_params({"optim": {"name": "paged_adamw_8bit"}})
    with pytest.raises(InputError, match="cuda-only"):
        train.run()
    assert not train.OUT.exists()


@pytest.mark.parametrize(
    ("precision", "rule", "fix"),
    [
        ("tf32", "cuda-only", "precision=fp32"),
        ("fp16", "contradiction", "optim.master_weights=true"),
        ("fp32", "contradiction", "optim.master_weights=true"),
    ],
)
def test_types_that_cannot_be_had_are_refused_and_leave_nothing(
    precision: str, rule: str, fix: str, checkout: Path, products_put_back: None
) -> None:
    """Here too, since one stage alone skips the stage spec; TF32 by where the model lies."""
    optim = {"master_weights": precision == "tf32"}
    write_params({"precision": precision, "hardware": {"device": "cuda"}, "optim": optim})
    with pytest.raises(InputError, match=fix) as caught:
        train.run()
    assert [finding.rule for finding in caught.value.findings] == [rule]
    assert torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")
    assert not train.OUT.exists()


def test_another_precision_turns_tf32_off(checkout: Path, products_put_back: None) -> None:
    torch.backends.fp32_precision = "tf32"  # planted: as transformers' own trainer sets it
    train.run()
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_bf16_without_master_weights_warns_and_says_so(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_params({"precision": "bf16", "optim": {"lr": 0.02, "master_weights": False}})
    train.run()
    said = capsys.readouterr().out
    assert "  warning: optim.master_weights false: an update smaller than 2^-9" in said
    assert "optim.lr 0.02 moves no weight beyond 10.2 in size" in said
    report = writers.read_json(Path("reports/train.json"))
    assert report["route"] == "bf16 adapter without master weights, bf16 base, bf16 autocast"
    first = outputs()
    train.run()
    assert outputs() == first
    capsys.readouterr()
    write_params({})
    train.run()
    assert "warning" not in capsys.readouterr().out


def test_checkpointing_gives_the_same_adapter_and_says_so(checkout: Path) -> None:
    train.run()
    first = outputs()
    report = json.loads(first.pop("reports/train.json"))
    assert report["recomputed_blocks"] == 0
    write_params({"activations": {"checkpointing": "full"}})
    train.run()
    second = outputs()
    assert json.loads(second.pop("reports/train.json")) == report | {"recomputed_blocks": 2}
    assert second == first


def test_unknown_trackers_are_refused_before_anything_is_loaded(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hashtune.errors import InputError

    monkeypatch.setenv("HASHTUNE_TRACKERS", "tensorbord,mlflw")
    monkeypatch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
    with pytest.raises(InputError) as caught:
        train.run()
    assert [(f.rule, f.fix) for f in caught.value.findings] == [
        ("tracker", "did you mean 'tensorboard'?"),
        ("tracker", "did you mean 'mlflow'?"),
    ]


def test_the_plan_is_read_as_it_was_written(checkout: Path, plan: Plan) -> None:
    found = start.read_plan(train.PACK)
    assert found == Plan(list(plan.rows), [list(s) for s in plan.steps], list(plan.eval_rows))


def test_a_second_trainer_takes_the_result(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train.run()
    first = outputs()
    real: Callable[..., Any] = train.runs.exclusive

    class Waited:
        def __init__(self, folder: Path, stop: StopRequest) -> None:
            self.lock = real(folder, stop)

        def __enter__(self) -> train.runs.Lock:
            self.lock.__enter__()
            return train.runs.Lock(waited=True)

        def __exit__(self, *error: Any) -> None:
            self.lock.__exit__(*error)

    monkeypatch.setattr(train.runs, "exclusive", Waited)
    monkeypatch.setattr(train, "_train", lambda *args: pytest.fail("it trained"))
    (train.OUT / "adapter" / WEIGHTS).unlink()
    train.run()
    assert outputs() == first
    assert "took the result of the trainer that was already at it" in capsys.readouterr().out


WHOLE = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets", "virtual_tokens"))


def test_full_fine_tuning_trains_every_parameter_of_the_plan_and_resumes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"method": {"type": "full", **WHOLE}, "precision": "bf16", "optim": {"lr": 1e-3}}
    full |= {"kernels": "fused", "batch": {"attention": "documents"}}
    write_params(full)
    train.run()
    straight = outputs()
    report = json.loads(straight["reports/train.json"])
    shape = read_shape(read_manifest(train.MANIFEST).config)
    assert report["trainable_parameters"] == shape.parameters
    assert report["route"] == "fp32 weights, all trained, bf16 autocast"
    parts = dict.fromkeys(("linear", "gated", "norm", "head"), 0)  # none is frozen
    assert report["fused"] == {**parts, "attention": 1}
    assert (report["steps"], report["targets"]) == (6, {})
    weights = Path("build/train/adapter/model.safetensors")
    assert report["adapter_sha256"] == writers.sha256_file(weights)
    machine = writers.read_json(Path("reports/machine/train.json"))
    assert machine["flops_convention"].startswith("FLOPs per token: 6 per trained parameter, 12")
    made: list[StopRequest] = []
    monkeypatch.setattr(train, "StopRequest", lambda: made.append(Stop()) or made[-1])
    said = train.frame.say

    def say(text: str) -> None:
        said(text)
        if text.startswith("  step 3/"):
            made[-1].signal = "SIGTERM"

    with monkeypatch.context() as patch:
        patch.setattr(train.frame, "say", say)
        with pytest.raises(Stopped):
            train.run()
    train.run()
    assert outputs() == straight


def test_full_fine_tuning_over_a_quantised_base_is_refused_before_anything_is_loaded(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
    pin = {"path": "data/first", "sha256": "1" * 64}
    full = {"method": {"type": "full", **WHOLE}}
    rounded = {"quantization": {"type": "nf4"}, "optim": {"master_weights": False}}
    for more, fields in (
        (rounded, ["quantization.type", "optim.master_weights"]),
        ({"base_model": {"init_adapter": pin}}, ["base_model.init_adapter"]),
    ):
        write_params(full | more)
        with pytest.raises(InputError) as caught:
            train.run()
        assert [finding.field for finding in caught.value.findings] == fields


def test_a_frozen_weight_is_refused_under_full_fine_tuning(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the last evaluation puts the first weight back to what the base has."""

    def back(loop: Any) -> None:
        name = next(iter(loop.trainee.parameters))
        with torch.no_grad():
            loop.trainee.parameters[name].copy_(loop.trainee.peft.pinned()[name])

    monkeypatch.setattr(train.Loop, "_evaluate", back)
    write_params({"method": {"type": "full", **WHOLE}})
    with pytest.raises(InputError, match=r"19/20 weights moved; still as in the base: model"):
        train.run()
    assert not (train.OUT / "adapter").exists()
