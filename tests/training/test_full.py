"""method.type full: the base itself is trained, written, proven; each planted fault is named."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hashtune import writers
from hashtune.errors import InputError, Stopped
from hashtune.records import Row
from hashtune.spec.schema import Activations, Optim
from hashtune.store.full_weights import CONFIG, WEIGHTS, FullModel
from hashtune.training.activations import set_checkpointing
from hashtune.training.adapter import write_adapter
from hashtune.training.batches import collate
from hashtune.training.documents import attend_as
from hashtune.training.full import train_all
from hashtune.training.gradients import check_gradients
from hashtune.training.loop import Loop
from hashtune.training.model import Trainee
from hashtune.training.noise import Noise
from hashtune.training.optimizers import build_optimizer
from hashtune.training.proof import prove_adapter
from hashtune.training.rerun import take_adapter
from hashtune.training.scaling import build_scaler
from hashtune.training.step import StepResult, train_step

MakeFull = Callable[..., Trainee]
Q0 = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"


@pytest.fixture
def trained(make_full: MakeFull) -> Trainee:
    trainee = make_full()
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.05)
    return trainee


@pytest.fixture
def row(make_row: Callable[[int, list[int]], Row]) -> Row:
    return make_row(3, [9, 8])


def write(trainee: Trainee, folder: Path) -> Path:
    write_adapter(trainee.peft, folder, base_name="b", revision="1")
    return folder


def change(folder: Path, edit: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(edit(load_file(folder / WEIGHTS)), folder / WEIGHTS)


def step(trainee: Trainee, rows: list[Row], optim: Optim, **more: Any) -> StepResult:
    optimizer = build_optimizer(trainee.parameters, optim)
    return train_step(
        trainee, optimizer, rows, micro=1, lr=optim.lr, grad_clip=1.0, first=True, **more
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_weight_is_trained_in_fp32_whatever_the_base_ships(
    precision: str, make_full: MakeFull
) -> None:
    trainee = make_full(precision=precision, dtype=torch.bfloat16)
    assert len(trainee.parameters) == 20  # 2 blocks of 9, the last norm, the embedding
    assert {p.dtype for p in trainee.parameters.values()} == {torch.float32}
    assert all(p.requires_grad for p in trainee.peft.parameters())
    model = trainee.peft.get_base_model()
    assert model.lm_head.weight is model.get_input_embeddings().weight
    compute = "no autocast" if precision == "fp32" else f"{precision} autocast"
    assert trainee.route == f"fp32 weights, all trained, {compute}"
    assert trainee.peft.training


def test_a_quantised_base_is_refused() -> None:
    with pytest.raises(InputError, match=r"quantised base are codes(.|\n)*quantization=none"):
        train_all(SimpleNamespace(is_quantized=True))


def test_equal_weights_are_equal_bytes_with_a_tied_head_once(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    tensors = load_file(folder / WEIGHTS)
    assert tensors.keys() == trained.parameters.keys()
    assert "lm_head.weight" not in tensors
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert writers.read_json(folder / CONFIG) == {
        "base_model_name_or_path": "b",
        "dtype": "float32",
        "method": "full",
        "revision": "1",
        "vocab_size": len(tensors["model.embed_tokens.weight"]),
    }
    write(trained, tmp_path / "b")
    for name in (WEIGHTS, CONFIG):
        assert (tmp_path / "b" / name).read_bytes() == (folder / name).read_bytes()


def test_the_proof_passes_and_leaves_the_model_as_it_was(
    trained: Trainee, row: Row, tmp_path: Path
) -> None:
    folder = write(trained, tmp_path / "a")
    before = {name: p.detach().clone() for name, p in trained.parameters.items()}
    prove_adapter(trained, folder, row, updates=3, start={})
    now = dict(trained.peft.named_parameters())
    assert all(now[name] is parameter for name, parameter in trained.parameters.items())
    assert all(torch.equal(now[name], before[name]) for name in before)
    assert trained.peft.training


@pytest.mark.parametrize("name", [Q0, NORM, "model.embed_tokens.weight"])
def test_a_weight_that_did_not_move_is_named(
    name: str, trained: Trainee, row: Row, tmp_path: Path, make_base: Callable[..., Any]
) -> None:
    with torch.no_grad():
        trained.parameters[name].copy_(dict(make_base().named_parameters())[name])
    folder = write(trained, tmp_path / "a")
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert finding.rule == "untrained-layers"
    assert finding.message == f"19/20 weights moved; still as in the base: {name}"


def test_one_row_of_the_embedding_is_enough(
    trained: Trainee, row: Row, tmp_path: Path, make_base: Callable[..., Any]
) -> None:
    name = "model.embed_tokens.weight"
    with torch.no_grad():
        trained.parameters[name][1:].copy_(dict(make_base().named_parameters())[name][1:])
    folder = write(trained, tmp_path / "a")
    prove_adapter(trained, folder, row, updates=3, start={})


def test_nothing_was_to_move(make_full: MakeFull, row: Row, tmp_path: Path) -> None:
    trainee = make_full()
    prove_adapter(trainee, write(trainee, tmp_path / "a"), row, updates=0, start={})


def test_weights_that_change_no_logit(
    trained: Trainee, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the base answers as the trained model does."""
    folder = write(trained, tmp_path / "a")
    own = trained.peft.tensors()
    monkeypatch.setattr(FullModel, "disable_adapter", lambda model: model.holding(own))
    with pytest.raises(InputError) as caught:
        prove_adapter(trained, folder, row, updates=3, start={})
    (finding,) = caught.value.findings
    assert (finding.rule, finding.fix) == ("no-effect", "raise optim.lr")


def test_faults_of_the_file(trained: Trainee, row: Row, tmp_path: Path) -> None:
    def check(edit: Callable[[dict[str, Tensor]], dict[str, Tensor]], words: str) -> None:
        folder = write(trained, tmp_path / words.split(maxsplit=1)[0].replace(".", ""))
        change(folder, edit)
        with pytest.raises(AssertionError, match=words):
            prove_adapter(trained, folder, row, updates=3, start={})

    check(lambda found: {n: t for n, t in found.items() if n != Q0}, f"model: lacks {Q0}")
    check(lambda found: {**found, NORM: found[NORM] + 0.5}, f"{NORM} loads with other values")


def test_another_value_reaches_the_logits(trained: Trainee, row: Row, tmp_path: Path) -> None:
    """Planted: values are not compared; the logits are."""
    folder = write(trained, tmp_path / "a")
    change(folder, lambda found: {**found, Q0: found[Q0] + 0.5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hashtune.training.proof.compare", lambda *_: None)
        with pytest.raises(AssertionError, match="logits are off by up to"):
            prove_adapter(trained, folder, row, updates=3, start={})


def test_nan_is_never_written(trained: Trainee, tmp_path: Path) -> None:
    with torch.no_grad():
        trained.parameters[Q0][0, 0] = torch.nan
    with pytest.raises(AssertionError, match=f"{Q0} is not finite"):
        write(trained, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_zero_gradient_is_a_fault_of_any_weight(make_row: Callable[..., Row]) -> None:
    weight = nn.Parameter(torch.ones(1, 1))
    weight.grad = torch.zeros(1, 1)
    check_gradients({"w": weight}, [make_row(1, [2, 3])])  # of an adapter it may be
    with pytest.raises(InputError, match=r"1 of 1 .* gradient of zero(.|\n)*method=lora"):
        check_gradients({"w": weight}, [make_row(1, [2, 3])], full=True)


@pytest.mark.parametrize(
    "name",
    ["adamw", "adamw_fused", "adamw_8bit", "adafactor", "lion", "muon", "sgd"],
)
def test_every_optimizer_moves_every_weight(
    name: str, make_full: MakeFull, make_optim: Callable[..., Optim], row: Row
) -> None:
    trainee = make_full(precision="bf16")
    assert step(trainee, [row], make_optim(name=name)).applied
    before = trainee.peft.pinned()
    assert not [n for n, p in trainee.parameters.items() if torch.equal(p, before[n])]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_autocast_computes_near_fp32_and_the_weights_stay_fp32(
    precision: str, make_full: MakeFull, make_optim: Callable[..., Optim], row: Row
) -> None:
    optim, exact = make_optim(), step(make_full(), [row], make_optim())
    trainee = make_full(precision=precision)
    result = step(trainee, [row], optim, scaler=build_scaler(trainee, None))
    assert result.applied
    assert result.loss == pytest.approx(exact.loss, rel=1e-2)
    assert result.grad_norm == pytest.approx(exact.grad_norm, rel=5e-2)
    assert {p.dtype for p in trainee.parameters.values()} == {torch.float32}
    assert (result.loss == exact.loss) is (precision == "fp32")


def moved(trainee: Trainee) -> dict[str, Tensor]:
    before = trainee.peft.pinned()
    return {name: p.detach() - before[name] for name, p in trainee.parameters.items()}


def test_checkpointing_documents_and_noise_work_as_with_an_adapter(
    make_full: MakeFull, make_optim: Callable[..., Optim], row: Row
) -> None:
    optim = make_optim(name="sgd", lr=0.1)
    plain, again, apart, noisy = (make_full() for _ in range(4))
    one = step(plain, [row], optim)
    settings = Activations(checkpointing="full", offload=False)
    assert set_checkpointing(again, settings) == 2
    assert step(again, [row], optim) == one
    weights = (plain.peft.parameters(), again.peft.parameters())
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    attend_as(apart.peft.get_base_model(), "documents", [row])
    assert step(apart, [row], optim).grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    wanted = moved(plain)
    for name, change in moved(apart).items():
        assert torch.allclose(change, wanted[name], atol=1e-5)
    assert step(noisy, [row], optim, noise=Noise(5.0, seed=1, step=1)).loss != one.loss


def test_resume_is_exact(make_loop: Callable[..., Loop], make_full: MakeFull) -> None:
    def loop(run: str, **more: Any) -> Loop:
        return make_loop(run, trainee=make_full(), select="best", **more)

    straight, resumed = loop("straight"), loop("resumed")
    straight.run()
    with pytest.raises(Stopped):
        loop("resumed", stop_after=3).run()
    resumed.run()
    one, other = (made.trainee.peft.tensors() for made in (straight, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.progress == straight.progress
    assert all(bool(change.any()) for change in moved(straight.trainee).values())


def test_a_step_may_run_with_saved_weights(
    trained: Trainee, make_full: MakeFull, row: Row, tmp_path: Path
) -> None:
    folder, fresh = write(trained, tmp_path / "a"), make_full()
    take_adapter(fresh, folder)
    batch = collate([row])
    with torch.no_grad():
        assert torch.equal(fresh.hidden(batch), trained.hidden(batch))
    change(folder, lambda found: {n: t for n, t in found.items() if n != Q0})
    with pytest.raises(InputError, match=f"adapter-missing(.|\n)*{Q0}|{Q0}(.|\n)*adapter-missing"):
        take_adapter(fresh, folder)
