"""hashtune step N --run: the bits of the run that trained, and nothing written."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from hashtune import writers
from hashtune.cli import step_run
from hashtune.cli.main import main
from hashtune.errors import Stopped
from hashtune.spec.load import read_params
from hashtune.stages import train
from hashtune.training import step as steps
from hashtune.training.model import Trainee
from hashtune.training.signals import StopRequest

Call = Callable[..., tuple[int, str, str]]
CURVE = Path("build/train/curves/plots/metrics/train/loss.tsv")
LOCK = "stages: {pack: {params: {params.yaml: {data.max_seq_len: 40}}}}\n"


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


@pytest.fixture(scope="module")
def trained(outputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the toy project, trained for five steps of two rows, with dropout."""
    folder = tmp_path_factory.mktemp("trained") / "project"
    shutil.copytree(outputs, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHTUNE_HOME", str(folder / "home"))
        patch.chdir(folder)
        patch.setattr(train, "StopRequest", Stop)
        params = read_params()
        params["method"] |= {"r": 2, "alpha": 4.0, "dropout": 0.1}
        params["optim"] |= {"lr": 0.01}
        params["duration"] |= {"epochs": 5, "max_steps": 5}
        params["data"]["max_seq_len"] = 40  # two rows: one document, and two
        params["batch"] |= {"micro": 1, "grad_accum": 2}
        params["determinism"]["threads"] = 1
        params["plan"]["probe_steps"] = 0
        Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
        Path("dvc.lock").write_text(LOCK, encoding="utf-8")
        writers.write_json(train.CODE, {"modules": {}})
        from hashtune.stages import pack

        pack.run()
        train.run()
    yield folder
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def step(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs the command in the trained project; gives exit code, stdout and stderr."""
    monkeypatch.setenv("HASHTUNE_HOME", str(trained / "home"))
    monkeypatch.chdir(trained)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["step", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


def recorded(step: int) -> float:
    lines = [line.split("\t") for line in CURVE.read_text(encoding="utf-8").splitlines()[1:]]
    return next(float(value) for number, value in lines if int(number) == step)


def loss(out: str) -> float:
    return float(re.findall(r"^  loss (\S+), gradient norm", out, re.MULTILINE)[0])


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_step_1_has_the_recorded_bits_and_nothing_is_written(step: Call, trained: Path) -> None:
    before = snapshot(trained)
    code, out, err = step("1", "--run")
    assert (code, err) == (0, "")
    assert out.startswith("──────── step 1\n  epoch 1, 2 rows,")
    assert "──────── step 1 run again\n  from the fresh adapter\n" in out
    assert loss(out) == recorded(1)
    assert "  finite; build/train/curves has the same loss, bit for bit\n" in out
    assert snapshot(trained) == before


def test_rows_and_documents_add_up_to_the_loss(step: Call) -> None:
    """lora_B begins at zero, so at step 1 dropout changes nothing."""
    out = step("1", "--run")[1]
    listed, again = out.split("step 1 run again")
    trained = [int(n) for n in re.findall(r"^  row \d+: \d+ tokens, (\d+)", listed, re.MULTILINE)]
    rows = [float(x) for x in re.findall(r"^  row \d+: loss (\S+)$", again, re.MULTILINE)]
    mean = sum(n * x for n, x in zip(trained, rows, strict=True)) / sum(trained)
    assert mean == pytest.approx(loss(out), rel=1e-5)
    inside = [int(n) for n in re.findall(r"^    \S+ \d+ tokens, (\d+)", listed, re.MULTILINE)]
    documents = [float(x) for x in re.findall(r"^    \S+ loss ([^ ,]+)", again, re.MULTILINE)]
    mean = sum(n * x for n, x in zip(inside, documents, strict=True)) / sum(inside)
    assert mean == pytest.approx(loss(out), rel=1e-5)


def test_a_later_step_has_the_recorded_bits_too(step: Call) -> None:
    out = step("4", "--run")[1]
    assert "  from the fresh adapter, steps 1 to 3 trained again in memory\n" in out
    assert loss(out) == recorded(4)
    assert "has the same loss, bit for bit" in out


def test_a_step_starts_at_the_nearest_checkpoint_before_it(
    step: Call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()
    monkeypatch.setattr(train, "StopRequest", lambda: stop)
    said = train.frame.say

    def say(text: str) -> None:
        said(text)
        if text.startswith("  step 3/"):
            stop.signal = "SIGTERM"

    for result in (trained / "home/runs").glob("*/result"):  # DVC never recorded it: else it counts
        shutil.rmtree(result)
    with monkeypatch.context() as patch:
        patch.setattr(train.frame, "say", say)
        with pytest.raises(Stopped):
            train.run()
    before = snapshot(trained)
    out = step("5", "--run")[1]
    assert "  from the checkpoint after step 3, step 4 trained again in memory\n" in out
    train_losses = loss(out)
    assert "  from the checkpoint after step 3\n" in step("4", "--run")[1]
    assert "  from the fresh adapter, steps 1 to 2 trained again in memory\n" in (
        early := step("3", "--run")[1]
    )
    assert loss(early) == recorded(3)
    assert snapshot(trained) == before
    monkeypatch.setattr(train, "StopRequest", Stop)
    train.run()
    assert train_losses == recorded(5)


def test_another_recorded_loss_is_seen(step: Call) -> None:
    """Planted: the curve's first loss with its last digit changed, then no curve."""
    text = CURVE.read_text(encoding="utf-8")
    try:
        CURVE.write_text(text.replace(repr(recorded(1)), "1.25"), encoding="utf-8")
        out = step("1", "--run")[1]
        assert "  finite; build/train/curves has another loss, 1.25: it is of other settings" in out
        CURVE.unlink()
        assert "  finite; build/train/curves has no loss of this step\n" in step("1", "--run")[1]
    finally:
        CURVE.write_text(text, encoding="utf-8")


def test_a_step_that_is_not_finite_is_shown_not_refused(
    step: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainee.hidden
    monkeypatch.setattr(Trainee, "hidden", lambda trainee, batch: real(trainee, batch) * torch.nan)
    code, out, _ = step("1", "--run")
    assert code == 0
    assert "  loss nan, gradient norm nan" in out
    assert "  not finite: training skips it; build/train/curves has another loss" in out
    assert "train1: loss nan" in out


def test_an_adapter_of_ones_own(step: Call, tmp_path: Path) -> None:
    """With every lora_B at zero it is the fresh adapter, and step 4 gets the base's loss."""
    folder = tmp_path / "zero"
    shutil.copytree("build/train/adapter", folder)
    file = folder / "adapter_model.safetensors"
    tensors = {n: t * 0 if "lora_B" in n else t for n, t in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    out = step("1", "--run", "--adapter", str(folder))[1]
    assert f"  with the adapter {folder}; dropout is not drawn as it was in training\n" in out
    assert loss(out) == recorded(1)
    assert "build/train/curves" not in out.split("run again")[1]
    moved = step("1", "--run", "--adapter", "build/train/adapter")[1]
    assert loss(moved) < recorded(1)


def test_an_adapter_that_does_not_fit_is_refused(step: Call, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree("build/train/adapter", folder)
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    first, second, third = sorted(tensors)[:3]
    changed = {n: t for n, t in tensors.items() if n != first}
    changed |= {"strange": tensors[first], second: tensors[second][:1], third: tensors[third]}
    save_file(changed, file, metadata={"format": "pt"})
    config = writers.read_json(folder / "adapter_config.json")
    writers.write_json(folder / "adapter_config.json", config | {"lora_alpha": 99.0})
    code, out, err = step("1", "--run", "--adapter", str(folder))
    assert code == 2
    assert "4 findings:" in err
    for rule in ("adapter-missing", "adapter-unexpected", "adapter-shape", "adapter-config"):
        assert f"[{rule}]" in err
    assert "run again" not in out


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        (["1", "--adapter", "build/train/adapter"], ["contradiction"]),
        (["x", "--run", "--adapter", "nowhere"], ["bad-number", "no-adapter", "no-adapter"]),
        (["6", "--run"], ["no-number"]),
    ],
)
def test_what_cannot_run_is_refused(step: Call, arguments: list[str], rules: list[str]) -> None:
    code, out, err = step(*arguments)
    assert (code, out) == (2, "")
    assert re.findall(r"\[([a-z-]+)\]", err) == rules


def test_full_fine_tuning_is_asked_for_its_own_files(step: Call) -> None:
    text = Path("params.yaml").read_text(encoding="utf-8")
    params = read_params()
    params["method"] = dict.fromkeys(params["method"]) | {"type": "full"}
    try:
        Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
        code, _, err = step("1", "--run", "--adapter", "build/train/adapter")
    finally:
        Path("params.yaml").write_text(text, encoding="utf-8")
    assert code == 2
    assert "adapter/model.safetensors: does not exist" in err
    assert "adapter/full.json: does not exist" in err


def test_missing_base_and_code_are_named(step: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (Path("build/base/manifest.json"), train.CODE):
        path.rename(path.with_suffix(".away"))
    try:
        code, _, err = step("1", "--run")
    finally:
        for path in (Path("build/base/manifest.json"), train.CODE):
            path.with_suffix(".away").rename(path)
    assert code == 2
    assert "build/base/manifest.json, build/code/train.json: are missing [no-output]" in err
    assert err.count("fix:") == 1


def test_the_update_of_the_step_is_not_what_is_measured(
    step: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted order: were documents measured after the update, they would not fit the loss."""
    order: list[str] = []
    real = steps.train_step
    from hashtune.training import loop as loops
    from hashtune.training import rerun

    losses = rerun.document_losses
    monkeypatch.setattr(loops, "train_step", lambda *a, **k: order.append("step") or real(*a, **k))
    monkeypatch.setattr(
        rerun, "document_losses", lambda *a: order.append("documents") or losses(*a)
    )
    step("2", "--run")
    assert (order[0], order[-1]) == ("step", "step")
    assert set(order[1:-1]) == {"documents"}


def test_full_fine_tuning_has_no_adapter_to_begin_with() -> None:
    """Where the weights of step 3 came from, as the method calls it."""
    fresh = SimpleNamespace(start=0, branched=False)
    between = ", steps 1 to 2 trained again in memory"
    for method, what, own in (
        ("lora", "from the fresh adapter", "adapter"),
        ("full", "from the pinned base", "weights"),
    ):
        assert step_run._start(3, None, fresh, method) == what + between
        told = step_run._start(3, Path("mine"), fresh, method)
        assert told.startswith(f"with the {own} mine; ")


@pytest.mark.parametrize("method", ["lora", "full"])
def test_chat_answers_with_what_was_trained(
    step: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    """Real models: the adapter that train left, and a folder of whole weights under full."""
    folder, name = Path("build/train/adapter"), "adapter"
    if method == "full":
        (base,) = (trained / "home").rglob("model.safetensors")
        folder, name = tmp_path / "whole", "trained"
        folder.mkdir()
        wider = {key: tensor.float() for key, tensor in load_file(base).items()}
        save_file(wider, folder / "model.safetensors")
    assert main(["chat", "hi", "--adapter", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("    base> ")
    assert f"\n{name:>8}> " in out
    if method == "full":  # the same weights say the same
        first, second = out.removeprefix("    base> ").split(f"{name:>8}> ")
        assert first == second
