"""Proof of a written adapter: PEFT loads it again beside the trained one, on the same base.

Every lora_B, virtual token and row of an added token has moved, every tensor of the file has its
place and its value, the logits of a row are those of the trained adapter to the bit, and not the
base's. Of a base that was trained itself every weight has moved, and the file's stand in for them.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.store.full_weights import WEIGHTS as FULL_WEIGHTS
from hashtune.training.adapter import WEIGHTS, compare
from hashtune.training.batches import collate
from hashtune.training.full import check_all_moved
from hashtune.training.guard import UNTOUCHED
from hashtune.training.model import Trainee
from hashtune.training.soft_prompts import check_all_parts
from hashtune.training.tokens import still_tokens

AGAIN = "again"  # the reloaded adapter's name beside "default"
POSITIONS = 16  # logits of a row's last tokens: a vocabulary has 49,152 of them and more
SAMPLES = 3


def prove_adapter(
    trainee: Trainee, folder: Path, row: Row, *, updates: int, start: Mapping[str, Tensor]
) -> None:
    """Reopen the adapter in `folder` and compare it with the one in memory.

    Args:
        trainee: the trained model; it is left as it was.
        folder: as `write_adapter` leaves it.
        row: real tokens to compute logits for.
        updates: how many were made; without any, no layer has moved and the logits are the start's.
        start: tensors of the adapter it continued from, empty if it began fresh.

    Raises:
        InputError: some lora_B, virtual token, row of an added token or trained weight is what it
            was, or the adapter changes no logit, or the logits are not finite.
        AssertionError: the file does not give the trained adapter back, a fault of ours.
    """
    tensors = load_file(folder / (FULL_WEIGHTS if trainee.full else WEIGHTS))
    if trainee.full:
        compare(trainee.peft.tensors(), tensors)
    if updates and trainee.full:
        check_all_moved(tensors, trainee.peft.pinned())
    elif updates:
        check_moved(tensors, start)
        check_tokens(trainee.peft, start)
    if updates and trainee.initial:
        changes = {n: p.detach() - trainee.initial[n] for n, p in trainee.parameters.items()}
        check_all_parts(trainee.peft, changes, what="did not move")
    with torch.no_grad(), evaluating(trainee):
        trained = _logits(trainee, row)
        with trainee.peft.disable_adapter():
            base = _logits(trainee, row)
        with _written(trainee, folder, tensors):
            again = _logits(trainee, row)
    if not bool(trained.isfinite().all()):
        raise InputError(_not_finite(base, row, updates))
    off = float((trained - again).abs().max())
    assert torch.equal(trained, again), f"the written adapter's logits are off by up to {off:.1e}"
    if updates and torch.equal(trained, base):
        message = f"after {updates} updates the adapter changes no logit of row {row.row}"
        fix = "raise optim.lr" if trainee.full else "raise optim.lr or method.alpha"
        raise InputError(Finding("no-effect", message, field="optim.lr", fix=fix))


def _not_finite(base: Tensor, row: Row, updates: int) -> Finding:
    """Finite weights may give products that are not; where the base's are not, they are its own."""
    message = f"after {updates} updates the logits of row {row.row} hold NaN or infinity"
    if bool(base.isfinite().all()):
        return Finding("non-finite", message, field="optim.lr", fix="lower optim.lr")
    return Finding("non-finite", f"{message}, as the base's do", field="base_model", fix=UNTOUCHED)


def check_moved(tensors: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Raise InputError naming lora_B tensors that are still zero, or still those of `start` where
    training continued from one: layers the loss never reached."""
    b = {name: tensor for name, tensor in tensors.items() if "lora_B" in name}
    if start:
        still = [name for name, tensor in b.items() if torch.equal(tensor, start[name])]
    else:
        still = [name for name, tensor in b.items() if not tensor.any()]
    if still:
        names = ", ".join(sorted(still)[:SAMPLES])
        what = "as at the start" if start else "zero"
        message = f"{len(b) - len(still)}/{len(b)} lora_B tensors moved; still {what}: {names}"
        raise InputError(Finding("untrained-layers", message, field="method.targets"))


def check_tokens(peft: Any, start: Mapping[str, Tensor]) -> None:
    """Raise InputError naming the added tokens whose row is what it was."""
    if still := still_tokens(peft, start):
        message = f"the rows of the added tokens {still} did not move"
        raise InputError(Finding("untrained-tokens", message, field="tokenizer.added_tokens"))


@contextmanager
def evaluating(trainee: Trainee) -> Iterator[None]:
    """Dropout is off meanwhile."""
    trainee.peft.eval()
    try:
        yield
    finally:
        trainee.peft.train()


@contextmanager
def _written(trainee: Trainee, folder: Path, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """What was written is what answers meanwhile."""
    if trainee.full:
        with trainee.peft.holding(tensors):
            yield
        return
    with _reloaded(trainee.peft, folder, str(trainee.device)):
        compare(_state(trainee.peft), tensors)
        yield


@contextmanager
def _reloaded(peft: Any, folder: Path, device: str) -> Iterator[None]:
    """The adapter of the folder is the active one meanwhile."""
    with warnings.catch_warnings():
        # PEFT only warns of missing tensors, which are compared by name, and reads an attribute
        # that transformers is about to rename
        warnings.filterwarnings("ignore", message="Found missing adapter keys")
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
        # unasked, PEFT would read the file onto any GPU
        peft.load_adapter(str(folder), adapter_name=AGAIN, torch_device=device)
    _as_trained(peft)
    try:
        peft.set_adapter(AGAIN)
        yield
    finally:
        peft.set_adapter("default")
        peft.delete_adapter(AGAIN)


def _as_trained(peft: Any) -> None:
    """PEFT loads bf16 tensors as fp32, which holds each; put them back into the file's type."""
    parameters = dict(peft.named_parameters())
    for name, parameter in parameters.items():
        if AGAIN in name.split("."):
            parts = ["default" if part == AGAIN else part for part in name.split(".")]
            parameter.data = parameter.data.to(parameters[".".join(parts)].dtype)


def _state(peft: Any) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict

    state: dict[str, Tensor] = get_peft_model_state_dict(
        peft, adapter_name=AGAIN, save_embedding_layers=False
    )
    return state


def _logits(trainee: Trainee, row: Row) -> Tensor:
    with trainee.autocast():
        states = trainee.hidden(collate([row]))
        return trainee.head(states[0, -POSITIONS:])
