"""Where train runs: refused without a GPU, asked of the loader, left out of what a CPU run keeps.

The run on a GPU needs one; the same test on the CPU shows that the test itself holds.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from hashtune import records, writers
from hashtune.errors import InputError, Stopped
from hashtune.records import Row
from hashtune.spec.load import read_params
from hashtune.stages import train
from hashtune.store import loader
from hashtune.store.manifest import Manifest, manifest_json
from hashtune.training import randomness, rates, start
from hashtune.training.adapter import WEIGHTS
from hashtune.training.fused.head import HeadLoss
from hashtune.training.signals import StopRequest

TINY: dict[str, dict[str, Any]] = {
    "method": {"r": 2, "alpha": 4.0, "dropout": 0.1},
    "batch": {"micro": 2, "layout": "padding_free"},
    "determinism": {"threads": 1},
    "plan": {"probe_steps": 1},
    "checkpoint": {
        **{"every_steps": 1, "keep_last": 1, "eval_every_steps": 1, "samples": 1},
        "keep_stable": None,
    },
}


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    source = {"kind": "synthetic", "repo": "tiny", "revision": "0", "file": None, "sha256": None}
    return loader.resolve(source, name="synthetic", say=lambda text: None)


@pytest.fixture
def checkout(
    tmp_path: Path,
    root: Path,
    manifest: Manifest,
    make_row: Callable[[int, list[int]], Row],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], None]:
    """A plan of three steps; writes params.yaml for a device."""
    monkeypatch.setattr(train, "StopRequest", Stop)
    writers.write_json(train.MANIFEST, manifest_json(manifest))
    writers.write_json(train.CODE, {"modules": {}})
    rows = [make_row(n, lengths) for n, lengths in enumerate([[5, 4], [7], [3, 3], [6]])]
    for name, kept in {"train": rows, "eval": [make_row(9, [6, 5])]}.items():
        dicts = [{f: getattr(row, f) for f in records.row_schema().names} for row in kept]
        writers.write_parquet(train.PACK / f"{name}.parquet", dicts, records.row_schema())
    steps = [
        {"step": n, "epoch": 1, "rows": numbers, "trained_tokens": 0, "tokens": 0}
        for n, numbers in enumerate([[0, 1], [2, 3], [1, 2]], start=1)
    ]
    writers.write_parquet(train.PACK / "steps.parquet", steps, records.step_schema())
    params = read_params(root / "params.yaml")

    def write(device: str) -> None:
        changed = {name: params[name] | values for name, values in TINY.items()}
        text = json.dumps(params | changed | {"device": device})  # JSON is YAML
        Path("params.yaml").write_text(text, encoding="utf-8")

    return write


def outputs() -> dict[str, bytes]:
    files = [*train.OUT.rglob("*"), Path("reports/train.json")]
    return {path.as_posix(): path.read_bytes() for path in files if path.is_file()}


def test_without_a_gpu_cuda_is_refused_before_the_base_is_loaded(
    checkout: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(start, "load_base", lambda *a, **k: pytest.fail("it loaded"))
    checkout("cuda")
    with pytest.raises(InputError) as caught:
        train.run()
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file, finding.field, finding.fix) == (
        *("no-gpu", "params.yaml", "device", "device=cpu"),
    )
    assert not train.OUT.exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_base_is_asked_for_on_the_device(
    device: str, checkout: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def load(_: Manifest, **options: Any) -> Any:
        asked.append(options["device"])
        raise Stopped("far enough")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(start, "load_base", load)
    checkout(device)
    with pytest.raises(Stopped):
        train.run()
    assert asked == [device]


def test_a_run_on_the_cpu_says_nothing_of_a_gpu_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # an earlier test may have
    assert list(randomness.torch_states()) == ["rng.torch"]
    assert 0.01 < rates.peak_memory_gb() < 1000
    train.frame._device_name()  # asks no GPU for its name: a build without CUDA would raise


def test_a_process_that_uses_cuda_keeps_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.tensor([1, 2], dtype=torch.uint8)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: state)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3_000_000_000)
    states = randomness.torch_states()
    assert sorted(states) == ["rng.cuda.0", "rng.torch"]
    assert torch.equal(states["rng.cuda.0"], state)
    assert rates.peak_memory_gb() == 3.0


def test_the_gradient_of_the_head_is_p_less_the_label() -> None:
    """Two positions over three words; both logits rows are the states, since W is the identity."""
    states = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    loss, _, _ = HeadLoss.apply(states, torch.tensor([2, 0]), torch.eye(3))
    loss.backward()
    third = 1 / 3
    expected = torch.tensor([[third, third, third - 1], [third - 1, third, third]])
    torch.testing.assert_close(states.grad, expected, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_three_steps_and_a_resume_give_the_same_bits(
    device: str, checkout: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    checkout(device)
    train.run()
    straight = outputs()
    report = json.loads(straight["reports/train.json"])
    assert (report["steps"], report["skipped_steps"]) == (3, 0)
    assert report["documents_apart"] == "proven before training"
    assert report["fused"]["linear"] == 14  # of 2 blocks
    assert report["fused"]["attention"] == int(device == "cpu")
    with safe_open(train.OUT / "adapter" / WEIGHTS, framework="pt") as file:
        assert len(list(file.keys())) == 28
    made: list[StopRequest] = []
    said = train.frame.say

    def say(text: str) -> None:
        said(text)
        if text.startswith("  step 2/"):
            made[-1].signal = "SIGTERM"

    monkeypatch.setattr(train, "StopRequest", lambda: made.append(Stop()) or made[-1])
    with monkeypatch.context() as patch:
        patch.setattr(train.frame, "say", say)
        with pytest.raises(Stopped, match="SIGTERM after step 2 of 3"):
            train.run()
    train.run()
    assert outputs() == straight
