"""A decay branched off a kept state: the bits of one long run, each difference refused by name."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from hashtune import records, writers
from hashtune.errors import InputError, Stopped
from hashtune.spec.load import read_params, read_spec
from hashtune.stages import train
from hashtune.store.loader import resolve
from hashtune.store.manifest import manifest_json
from hashtune.training import loop as loops
from hashtune.training import start
from hashtune.training.plan import Plan
from hashtune.training.signals import StopRequest
from hashtune.training.step import EvalResult

Params = dict[str, dict[str, Any]]
ROWS = [[0, 1], [2, 3], [4, 5], [3, 0], [5, 2], [1, 4], [2, 0], [4, 1], [3, 5], [0, 2]]
TINY: Params = {
    "base_model": {
        **{"name": "synthetic", "source": "synthetic", "repo": "tiny", "revision": "0"},
        **{"file": None, "sha256": None, "init_adapter": None},
    },
    "method": {"r": 2, "alpha": 4.0, "dropout": 0.1, "targets": ["q_proj"]},
    "optim": {"lr": 0.01, "weight_decay": 0.01},
    "batch": {"micro": 2},
    "determinism": {"threads": 1},
    "plan": {"probe_steps": 1},
    "checkpoint": {
        **{"every_steps": 2, "keep_last": 1, "eval_every_steps": 2, "samples": 1},
        "max_skipped_steps": 0,
    },
    "schedule": {
        **{"name": "wsd", "warmup_fraction": None, "warmup_steps": 2, "min_lr_ratio": 0.0},
        **{"decay": "1-sqrt", "decay_start": 4},
    },
}
FULL = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets", "virtual_tokens"))
FULL |= {"type": "full"}
CODE = {"python": "3.11", "modules": {"a": "1"}, "packages": {"torch": "2.13.0"}}
DECAY = 8  # steps of the run that decays after update 4; the run that keeps the state has 10
HELD = {"schedule": {"decay_start": 7}, "checkpoint": {"keep_stable": 4}}


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def write(root: Path) -> Callable[..., None]:
    """Writes params.yaml: those of this repository, TINY, then the changes, one after another."""
    params = read_params(root / "params.yaml")

    def write(*changes: dict[str, Any]) -> None:
        merged = dict(params)
        for change in (TINY, *changes):
            for name, value in change.items():
                merged[name] = {**merged[name], **value} if isinstance(value, dict) else value
        Path("params.yaml").write_text(yaml.safe_dump(merged), encoding="utf-8")

    return write


def pack(plan: Plan, steps: Sequence[Sequence[int]]) -> None:
    for name, rows in (("train", plan.rows), ("eval", plan.eval_rows)):
        dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in rows]
        writers.write_parquet(train.PACK / f"{name}.parquet", dicts, records.row_schema())
    table = [
        {"step": n, "epoch": 1, "rows": list(rows), "trained_tokens": 0, "tokens": 0}
        for n, rows in enumerate(steps, start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", table, records.step_schema())


@pytest.fixture
def checkout(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a plan of 8 steps."""
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(train, "StopRequest", Stop)
    source: Any = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None}
    manifest = resolve({**source, "sha256": None}, name="synthetic", say=lambda text: None)
    writers.write_json(train.MANIFEST, manifest_json(manifest))
    writers.write_json(train.CODE, CODE)
    pack(plan, ROWS[:DECAY])
    return tmp_path


@pytest.fixture
def kept(checkout: Path, write: Callable[..., None], plan: Plan) -> dict[str, Any]:
    """The pin of a state after step 4, kept by a run of 10 steps, in data/stable."""
    return keep(write, plan)


def keep(write: Callable[..., None], plan: Plan, *changes: dict[str, Any]) -> dict[str, Any]:
    pack(plan, ROWS)
    write(HELD, *changes)
    train.run()
    shutil.copytree(train.OUT / "stable", "data/stable")
    sha256 = writers.read_json(Path("reports/train.json"))["kept_stable"]["sha256"]
    pack(plan, ROWS[:DECAY])
    return {"path": "data/stable", "sha256": sha256}


def branch(pin: dict[str, Any]) -> dict[str, Any]:
    return {"schedule": {"branch_from": pin}}


def outputs() -> dict[str, bytes]:
    return {p.as_posix(): p.read_bytes() for p in train.OUT.rglob("*") if p.is_file()}


def report() -> dict[str, Any]:
    found: dict[str, Any] = writers.read_json(Path("reports/train.json"))
    return found


def refusal(write: Callable[..., None], *changes: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Rule and field of what train says of these settings; it loads no model before."""
    write(*changes)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError) as caught:
        patch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
        train.run()
    return [(finding.rule, finding.field) for finding in caught.value.findings]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optim": {"name": "adamw_8bit", "neftune_alpha": 5.0}},
        {"optim": {"name": "muon", "beta1": 0.95}},
        {"precision": "fp16", "schedule": {"decay": "linear"}},
        {"method": FULL},
    ],
)
def test_a_branched_decay_has_the_bits_of_one_long_run(
    changes: dict[str, Any], checkout: Path, write: Callable[..., None], plan: Plan
) -> None:
    write(changes)
    train.run()
    straight, told = outputs(), report()
    assert (told["branch"], told["kept_stable"]) == (None, None)
    pin = keep(write, plan, {n: v for n, v in changes.items() if n != "schedule"})
    parent = report()
    assert parent["kept_stable"] == {"step": 4, "sha256": pin["sha256"]}
    write(changes, {"schedule": {**changes.get("schedule", {}), "branch_from": pin}})
    train.run()
    assert outputs() == straight
    facts = {"step": 4, "sha256": pin["sha256"], "same_code": True}
    facts["parent"] = writers.read_json(Path("data/stable/state.json"))["identity"]
    assert report() == told | {"branch": facts}
    assert parent["adapter_sha256"] != told["adapter_sha256"]
    machine = writers.read_json(Path("reports/machine/train.json"))
    assert machine["first_step_of_this_process"] == 5
    assert [line["step"] for line in writers.read_jsonl(train.LOG)] == [5, 8]


@pytest.mark.parametrize("best", [2, 4, 6])
def test_best_step_and_early_stopping_go_on(
    best: int,
    checkout: Path,
    write: Callable[..., None],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best adapter before the branch is in the state; the patience counts on."""

    def run(first: int, go: Callable[[], Any]) -> Any:
        steps = iter(range(first, 11, 2))
        monkeypatch.setattr(
            loops, "evaluate_loss", lambda *a, **k: EvalResult(abs(next(steps) - best) + 1.0, 0.5)
        )
        return go()

    patient = {"checkpoint": {"select": "best", "early_stop_patience": 3}}
    kept = {"checkpoint": patient["checkpoint"] | {"keep_stable": 4}}
    write(patient)
    run(2, train.run)
    straight, told = outputs(), report()
    assert (told["adapter_step"], told["stopped_early"]) == (best, False)
    pin = run(2, lambda: keep(write, plan, kept))
    write(patient, branch(pin))
    run(6, train.run)
    assert outputs() == straight
    assert report() == told | {"branch": report()["branch"]}
    impatient = {"checkpoint": patient["checkpoint"] | {"early_stop_patience": 2}}
    if best == 2:  # evaluations at 4 and 6 are worse
        shutil.rmtree("data/stable")
        pin = run(
            2,
            lambda: keep(write, plan, {"checkpoint": impatient["checkpoint"] | HELD["checkpoint"]}),
        )
        write(impatient, branch(pin))
        run(6, train.run)
        assert (report()["steps"], report()["stopped_early"]) == (6, True)


def test_a_killed_branch_resumes_to_the_same_bits(
    kept: dict[str, Any],
    write: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write()
    train.run()
    straight = outputs()
    long = train.run_folder(read_spec())
    write(branch(kept))
    assert train.run_folder(read_spec()) != long
    for last in (5, 7):
        with pytest.raises(Stopped, match=f"SIGTERM after step {last} of 8"):
            stopped_after(last, monkeypatch)
    shutil.rmtree(train.OUT)
    capsys.readouterr()
    train.run()
    assert "  resuming after step 7 from step-00000007\n" in capsys.readouterr().out
    assert outputs() == straight
    left = sorted(path.name for path in train.run_folder(read_spec()).iterdir())
    assert left == ["lock", "result"]


def stopped_after(last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, said = Stop(), train.frame.say

    def say(text: str) -> None:
        said(text)
        if text.startswith(f"  step {last}/"):
            stop.signal = "SIGTERM"

    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequest", lambda: stop)
        patch.setattr(train.frame, "say", say)
        train.run()


def test_the_state_has_the_same_bytes_whenever_the_run_was_stopped(
    kept: dict[str, Any],
    checkout: Path,
    write: Callable[..., None],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {p.name: p.read_bytes() for p in Path("data/stable").iterdir()}
    assert sorted(first) == ["manifest.json", "state.json", "tensors.safetensors"]
    assert not any(str(checkout).encode() in data for data in first.values())
    pack(plan, ROWS)
    write(HELD)
    for last in (3, 4, 6):
        with pytest.raises(Stopped):
            stopped_after(last, monkeypatch)
    train.run()
    assert {p.name: p.read_bytes() for p in (train.OUT / "stable").iterdir()} == first


def test_the_end_of_a_constant_run_is_a_state_too(
    checkout: Path, write: Callable[..., None], plan: Plan
) -> None:
    """Kept before the evaluation that only the end of that run makes."""
    write()
    train.run()
    straight = outputs()
    constant = {"name": "constant", "decay": None, "decay_start": None}
    pack(plan, ROWS[:3])
    write({"schedule": constant, "checkpoint": {"keep_stable": 3}})
    train.run()
    shutil.copytree(train.OUT / "stable", "data/stable")
    pin = {"path": "data/stable", "sha256": report()["kept_stable"]["sha256"]}
    pack(plan, ROWS[:DECAY])
    write(branch(pin))
    train.run()
    assert outputs() == straight


def test_without_a_kept_state_the_output_says_so(
    checkout: Path, write: Callable[..., None]
) -> None:
    write()
    train.run()
    manifest = train.OUT / "stable/manifest.json"
    assert writers.read_json(manifest) == {"files": {}, "step": None}
    shutil.copytree(train.OUT / "stable", "data/stable")
    pin = {"path": "data/stable", "sha256": writers.sha256_file(manifest)}
    assert refusal(write, branch(pin)) == [("branch", "schedule.branch_from")]


def test_a_run_that_ends_before_the_step_says_that_it_kept_nothing(
    checkout: Path,
    write: Callable[..., None],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    losses = iter([1.0, 2.0])
    monkeypatch.setattr(loops, "evaluate_loss", lambda *a, **k: EvalResult(next(losses), 0.5))
    pack(plan, ROWS)
    write(HELD, {"checkpoint": {"keep_stable": 5, "early_stop_patience": 1}})
    train.run()
    assert (report()["steps"], report()["kept_stable"]) == (4, None)
    assert "training ended before step 5: no state is kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"optim": {"lr": 0.02}}, ["optim.lr"]),
        ({"optim": {"name": "sgd"}}, ["optim.name"]),
        ({"optim": {"weight_decay": 0.0, "grad_clip": 2.0}}, ["optim.grad_clip", "optim.weight_"]),
        ({"method": {"r": 4, "targets": ["v_proj"]}}, ["method.r", "method.targets"]),
        ({"quantization": {"type": "nf4"}}, ["quantization.type"]),
        ({"precision": "bf16"}, ["precision"]),
        ({"seed": 7}, ["seed"]),
        ({"batch": {"micro": 1, "layout": "length_grouped"}}, ["batch.layout", "batch.micro"]),
        ({"determinism": {"threads": 2}}, ["determinism.threads"]),
        ({"checkpoint": {"select": "best", "samples": 0}}, ["checkpoint.samples", "checkpoint.se"]),
        ({"checkpoint": {"keep_stable": 4}}, ["checkpoint.keep_stable"]),
        ({"schedule": {"warmup_steps": 3}}, ["schedule.warmup_steps"]),
        ({"schedule": {"warmup_steps": 5, "decay_start": 6}}, ["schedule.warmup_steps"]),
        ({"schedule": {"decay_start": 2}}, ["schedule.decay_start"]),
    ],
)
def test_each_setting_that_differs_is_named(
    changes: dict[str, Any],
    fields: list[str],
    kept: dict[str, Any],
    write: Callable[..., None],
) -> None:
    schedule = {"schedule": {**changes.get("schedule", {}), "branch_from": kept}}
    found = refusal(write, changes, schedule)
    assert [rule for rule, _ in found] == ["branch-differs"] * len(fields)
    assert all(a.startswith(b) for (_, a), b in zip(found, fields, strict=True) if a)


def test_another_device_is_named(
    kept: dict[str, Any], write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = refusal(write, {"device": "cuda"}, branch(kept))
    assert found == [("branch-differs", "device")]


def test_a_state_of_the_last_update_at_the_peak_is_stable(
    kept: dict[str, Any], write: Callable[..., None]
) -> None:
    """decay_start 3: updates 1 to 4 are made at the peak or before it, the fifth below."""
    write({"schedule": {"decay_start": 3, "branch_from": kept}})
    train.run()
    rates = [point for point in (train.OUT / "curves").rglob("lr.tsv")]
    values = [float(line.split("\t")[-1]) for line in rates[0].read_text().splitlines()[1:]]
    assert (values[3], values[4] < 0.01, values[7]) == (0.01, True, 0.0)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([[1, 0], *ROWS[1:DECAY]], "the rows of step 1 differ"),
        ([*ROWS[:2], [5, 4], *ROWS[3:DECAY]], "the rows of step 3 differ"),
        (ROWS[:4], "the plan has 4 steps and the branch begins after step 4: none is left"),
    ],
)
def test_another_data_order_is_named_by_its_first_step(
    steps: list[list[int]],
    message: str,
    kept: dict[str, Any],
    write: Callable[..., None],
    plan: Plan,
) -> None:
    pack(plan, steps)
    write({"schedule": {"decay_start": 2}} if len(steps) == 4 else {}, branch(kept))
    with pytest.raises(InputError, match=message):
        train.run()


def test_another_order_after_the_branch_is_free(
    kept: dict[str, Any], write: Callable[..., None], plan: Plan
) -> None:
    pack(plan, [*ROWS[:4], [0, 1], [2, 3]])
    write(branch(kept))
    train.run()
    assert report()["steps"] == 6


@pytest.mark.parametrize("field", ["input_ids", "labels", "row", "eval"])
def test_other_rows_are_seen(
    field: str, kept: dict[str, Any], write: Callable[..., None], plan: Plan
) -> None:
    for split in ("train", "eval"):
        file = train.PACK / f"{split}.parquet"
        rows = writers.read_parquet(file)
        if field == "eval" and split == "eval":
            rows[0]["input_ids"][1] += 1
        elif field in ("input_ids", "labels") and split == "train":
            rows[5][field][3] += 1  # row 5 is first seen in step 3
        elif field == "row" and split == "train":
            rows[5]["row"] = 9
        writers.write_parquet(file, rows, records.row_schema())
    assert refusal(write, branch(kept)) == [
        ("branch-differs", "data.eval" if field == "eval" else "data")
    ]


def test_another_base_or_library_is_named_and_other_code_is_told(
    kept: dict[str, Any], write: Callable[..., None]
) -> None:
    newer = CODE | {"packages": {"torch": "2.14.0", "peft": "0.21"}, "python": "3.12"}
    writers.write_json(train.CODE, newer)
    manifest = train.MANIFEST.read_bytes()
    train.MANIFEST.write_bytes(manifest + b" ")
    write(branch(kept))
    with pytest.raises(InputError) as caught:
        train.run()
    told = [(finding.field, finding.file) for finding in caught.value.findings]
    assert told == [("base_model", "params.yaml"), *[(None, "requirements.lock")] * 3]
    assert "trained with torch 2.13.0, this is torch 2.14.0" in str(caught.value)
    train.MANIFEST.write_bytes(manifest)
    writers.write_json(train.CODE, CODE | {"modules": {"a": "2"}})
    train.run()
    assert report()["branch"]["same_code"] is False


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors", "manifest.json"])
def test_a_changed_byte_is_seen(
    name: str, kept: dict[str, Any], write: Callable[..., None]
) -> None:
    file = Path("data/stable") / name
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    ((rule, field),) = refusal(write, branch(kept))
    assert rule == "pin-differs"
    assert field == "schedule.branch_from" + (".sha256" if name == "manifest.json" else "")


def repinned() -> dict[str, Any]:
    """The pin of data/stable after a change by hand, its manifest fitting."""
    folder = Path("data/stable")
    files = {
        name: {"size": (folder / name).stat().st_size, "sha256": writers.sha256_file(folder / name)}
        for name in ("state.json", "tensors.safetensors")
    }
    writers.write_json(folder / "manifest.json", {"step": 4, "files": files})
    return {"path": "data/stable", "sha256": writers.sha256_file(folder / "manifest.json")}


def test_other_tensors_are_named(kept: dict[str, Any], write: Callable[..., None]) -> None:
    file = Path("data/stable/tensors.safetensors")
    tensors = load_file(file)
    first, second, *_ = sorted(name for name in tensors if name.startswith("adapter."))
    tensors["adapter.strange"] = tensors.pop(first)
    tensors[second] = tensors[second][:1].clone()
    save_file(tensors, file)
    write(branch(repinned()))
    with pytest.raises(InputError) as caught:
        train.run()
    told = [finding.message for finding in caught.value.findings]
    assert told[0].endswith(f"lacks 1 trained tensors: {first.removeprefix('adapter.')}")
    assert told[1].endswith("holds 1 trained tensors: strange")
    assert told[2].startswith(second.removeprefix("adapter."))
    assert len(told) == 3


@pytest.mark.parametrize("fault", ["tensors", "json", "key", "progress", "step", "spec"])
def test_what_is_no_state_is_refused_not_a_fault_of_ours(
    fault: str, kept: dict[str, Any], write: Callable[..., None]
) -> None:
    folder = Path("data/stable")
    state = writers.read_json(folder / "state.json")
    if fault == "key":
        del state["code"]
    elif fault == "progress":
        state["progress"]["strange"] = 1
    elif fault == "step":
        state["progress"]["step"] = 3
    elif fault == "spec":
        state["spec"] = {"inputs": 3}
    writers.write_json(folder / "state.json", state)
    if fault == "json":
        (folder / "state.json").write_text("{")
    if fault == "tensors":
        (folder / "tensors.safetensors").write_bytes(b"none")
    assert refusal(write, branch(repinned())) == [("branch", "schedule.branch_from")]


@pytest.mark.parametrize("fault", ["restore_rng", "restore_optimizer"])
def test_planted_fault_part_of_the_state_is_not_restored(
    fault: str, kept: dict[str, Any], write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    train.run()
    straight = outputs()
    monkeypatch.setattr(loops, fault, lambda *args: None)
    write(branch(kept))
    train.run()
    name = "build/train/adapter/adapter_model.safetensors"
    assert outputs()[name] != straight[name]


@pytest.mark.parametrize(("step", "rule"), [(1, "keep-stable"), (9, "keep-stable"), (2, None)])
def test_only_a_step_of_the_stable_phase_is_kept(
    step: int, rule: str | None, checkout: Path, write: Callable[..., None], plan: Plan
) -> None:
    """Two updates warm up; decay_start 7: the eighth update is the last one at the peak."""
    pack(plan, ROWS)
    change = {**HELD, "checkpoint": {"keep_stable": step}}
    if rule is None:
        write(change)
        train.run()
        assert report()["kept_stable"]["step"] == step
    else:
        assert refusal(write, change) == [(rule, "checkpoint.keep_stable")]
