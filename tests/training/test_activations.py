"""Checkpointing: the same bits as without, fewer bytes kept, planted faults, refusals."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hashtune.errors import InputError
from hashtune.records import Row
from hashtune.spec.schema import Activations
from hashtune.training.activations import set_checkpointing
from hashtune.training.batches import collate
from hashtune.training.loss import token_losses
from hashtune.training.model import Trainee

MODES = ["selective", "full"]
TOKENS, HIDDEN, BLOCKS = 9, 64, 2  # of the one row here; of the synthetic base
INPUT = TOKENS * HIDDEN * 4
LAST_NORM = TOKENS * (HIDDEN + 1) * 4  # its fp32 input and a factor for each token


class OnCuda(Trainee):
    """Says so; nothing is moved."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


def chosen(mode: Any, *, offload: bool = False) -> Activations:
    return Activations(checkpointing=mode, offload=offload)


@pytest.fixture
def row(make_row: Callable[[int, list[int]], Row]) -> Row:
    return make_row(1, [5, 4])


@pytest.fixture
def make(make_trainee: Callable[..., Trainee]) -> Callable[..., Trainee]:
    def shaken(**settings: Any) -> Trainee:
        trainee = make_trainee(targets="all-linear", **settings)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():  # lora_B is zero at the start, and the gradient of A with it
            for parameter in trainee.parameters.values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
        return trainee

    return shaken


def backward(trainee: Trainee, row: Row) -> tuple[Tensor, dict[str, Any], Tensor]:
    """Loss, gradients, and the state of torch's generator afterwards."""
    torch.manual_seed(5)
    batch = collate([row])
    with trainee.autocast():
        loss = token_losses(trainee.hidden(batch), batch.labels, trainee.head).loss
    loss.backward()
    grads = {name: parameter.grad for name, parameter in trainee.parameters.items()}
    return loss.detach(), grads, torch.get_rng_state()


def same(one: Any, other: Any) -> bool:
    return (
        torch.equal(one[0], other[0])
        and all(torch.equal(grad, other[1][name]) for name, grad in one[1].items())
        and torch.equal(one[2], other[2])
    )


def kept_bytes(trainee: Trainee, row: Row) -> int:
    """What autograd keeps of the forward, parameters left out."""
    frozen = {tensor.data_ptr() for tensor in trainee.peft.parameters()}
    storages: dict[int, int] = {}
    held: list[Tensor] = []  # an address is taken once only while its tensor lives

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states = trainee.hidden(collate([row]))
    assert states.requires_grad
    return sum(size for at, size in storages.items() if at not in frozen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"dropout": 0.3}, {"dropout": 0.3, "precision": "bf16"}, {"variant": "dora"}],
    ids=str,
)
def test_loss_gradients_and_random_numbers_are_the_same_bits(
    mode: str, settings: dict[str, Any], make: Callable[..., Trainee], row: Row
) -> None:
    plain, again = make(**settings), make(**settings)
    assert set_checkpointing(again, chosen(mode)) == {"selective": 1, "full": 2}[mode]
    expected = backward(plain, row)
    assert all(grad.any() for grad in expected[1].values())
    assert same(expected, backward(again, row))


def test_planted_fault_other_random_numbers_in_the_second_forward(
    make: Callable[..., Trainee], row: Row
) -> None:
    plain, again = make(dropout=0.3), make(dropout=0.3)
    set_checkpointing(again, chosen("full"))
    faulty = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    for block in again.peft.get_base_model().model.layers:
        block._gradient_checkpointing_func = faulty
    assert not same(backward(plain, row), backward(again, row))


def test_kept_bytes_by_hand(make: Callable[..., Trainee], row: Row) -> None:
    plain, selective, full = make(), make(), make()
    set_checkpointing(selective, chosen("selective"))
    set_checkpointing(full, chosen("full"))
    everything = kept_bytes(plain, row)
    assert kept_bytes(full, row) == BLOCKS * INPUT + LAST_NORM < everything / 5
    # the second block as it was; the first one's norm, which keeps nothing, is as long as the last
    rotary = 2 * TOKENS * (HIDDEN // 4) * 4
    block = (everything - rotary) // BLOCKS
    assert kept_bytes(selective, row) == INPUT + block + rotary + LAST_NORM


def test_planted_fault_an_option_that_does_nothing_shows_in_the_bytes(
    make: Callable[..., Trainee], row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainee = make()
    base = trainee.peft.get_base_model()
    monkeypatch.setattr(base, "activation_checkpointing_enable", lambda **settings: None)
    assert set_checkpointing(trainee, chosen("full")) == 0
    assert kept_bytes(trainee, row) > 5 * (BLOCKS * INPUT + LAST_NORM)


def test_none_changes_nothing(make: Callable[..., Trainee], row: Row) -> None:
    trainee = make()
    before = kept_bytes(trainee, row)
    assert set_checkpointing(trainee, chosen("none")) == 0
    assert kept_bytes(trainee, row) == before


def test_offloading_moves_the_inputs_of_the_blocks_and_nothing_else(
    make: Callable[..., Trainee], row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would go to the host on CUDA, and that it comes back: here it stays where it is."""
    moved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        moved.append(tensor.nbytes)
        return tensor.clone()

    def save_on_cpu(**settings: Any) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    monkeypatch.setattr("transformers.modeling_utils.save_on_cpu", save_on_cpu)
    plain, trainee = make(dropout=0.3), make(dropout=0.3)
    on_cuda = OnCuda(trainee.peft, trainee.parameters, trainee.precision)
    assert set_checkpointing(on_cuda, chosen("full", offload=True)) == BLOCKS
    assert same(backward(plain, row), backward(trainee, row))
    assert moved == [INPUT] * BLOCKS


def test_offloading_on_a_cpu_is_refused(make: Callable[..., Trainee]) -> None:
    trainee = make()
    with pytest.raises(InputError) as caught:
        set_checkpointing(trainee, chosen("full", offload=True))
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("cuda-only", "activations.offload")
    assert not any(b.gradient_checkpointing for b in trainee.peft.get_base_model().model.layers)


def test_a_model_without_such_blocks_is_refused(
    make: Callable[..., Trainee], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainee = make()
    base = trainee.peft.get_base_model()
    monkeypatch.setattr(type(base), "supports_gradient_checkpointing", False)
    with pytest.raises(InputError, match="has no blocks that can be checkpointed"):
        set_checkpointing(trainee, chosen("full"))
