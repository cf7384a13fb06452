"""Proof on the real model, before training: what the loss takes from the base is what it computes.

Training runs the backbone and the head itself, so that logits exist for trained tokens only. A
model may do more than these two: scale its logits (Cohere, Granite), cap them (Gemma 2), add to its
loss (routers of experts), or attend in a way that `batch.attention` takes away. So the model's own
forward runs once over a few tokens. Three values of it are compared: the states that reach its
head; the logits, of random states put in their place, wide enough for a cap to show; and the loss.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hashtune.errors import Finding, InputError
from hashtune.records import IGNORE_INDEX, Row
from hashtune.training.batches import collate
from hashtune.training.model import Trainee

TOKENS = 8
SPREAD = 30.0  # standard deviation of the logits of random states
# Relative to the largest value. States: another kernel may sum in another order. Logits: products
# of other shapes; a rounding is 2^-9 in bf16 and 2^-12 in fp16. Loss: of the same logits in fp32.
STATES = {"fp32": 1e-4, "tf32": 4e-3, "bf16": 3e-2, "fp16": 4e-3}
LOGITS = {"fp32": 1e-5, "tf32": 4e-3, "bf16": 1e-2, "fp16": 2e-3}
LOSS = 1e-5
# bitsandbytes rounds what enters an int8 layer to 1/127 of the largest of its row: a last digit
# of another kernel may move a value by one such step in each layer
INT8_STATES = 3e-2


@dataclass(frozen=True, slots=True)
class Difference:
    """Relative differences between the model's own forward and what training takes from it."""

    states: float
    logits: float
    loss: float
    int8: bool = False  # whether the base is stored in int8


def compare_own(trainee: Trainee, row: Row) -> Difference:
    """Measure over the row's first tokens, as one document. Weights, mode and random generators are
    left as they were."""
    ids = (row.input_ids * 2)[: max(2, min(TOKENS, len(row.input_ids)))]
    batch = collate([Row(row.row, row.example_ids[:1], [len(ids)], ids, [IGNORE_INDEX] * len(ids))])
    with probing(trainee), _without_virtual(trainee):
        states = trainee.hidden(batch).float()
        wide = _wide_states(trainee, states.shape)
        with _in_place_of_states(trainee, wide) as own_states:
            inputs = batch.input_ids.to(trainee.device)
            own = trainee.peft.get_base_model()(input_ids=inputs, labels=inputs, use_cache=False)
        logits = trainee.head(wide)
    theirs = own.logits.float()
    loss = math.inf
    if theirs.shape == logits.shape:
        entropy = functional.cross_entropy(theirs[0, :-1], inputs[0, 1:])
        loss = _relative(entropy, own.loss.float())
    return Difference(
        states=_states_off(states, own_states),
        logits=_relative(logits.float(), theirs),
        loss=loss,
        int8=in_int8(trainee),
    )


def in_int8(trainee: Trainee) -> bool:
    """Whether the base is stored in int8, whose layers round what enters them."""
    return bool(getattr(trainee.peft.get_base_model(), "is_loaded_in_8bit", False))


def check_own(difference: Difference, precision: str) -> None:
    """Raise InputError when training would take other values than the model's own."""
    # not >: catches NaN too
    tolerance = max(STATES[precision], INT8_STATES) if difference.int8 else STATES[precision]
    if not difference.states <= tolerance:
        message = f"its states are off by {difference.states:.1e} from those of the model itself"
        fix = "batch.attention=mask with data.packing=false, or another base"
        raise InputError(_unsupported(message, "batch.attention", fix))
    if not difference.logits <= LOGITS[precision]:
        message = "this base changes its logits after the head: they are off by "
        raise InputError(_unsupported(f"{message}{difference.logits:.1e} without that"))
    if not difference.loss <= LOSS:
        message = "its own loss is not the cross-entropy of its logits for the next token: off by "
        raise InputError(_unsupported(f"{message}{difference.loss:.1e}"))


def _unsupported(message: str, field: str = "base_model", fix: str = "another base") -> Finding:
    return Finding("unsupported-model", message, file="params.yaml", field=field, fix=fix)


@contextmanager
def probing(trainee: Trainee) -> Iterator[None]:
    """Without dropout and gradients, as training computes; mode and random generators come back."""
    training = trainee.peft.training
    used = [trainee.device] if trainee.device.type == "cuda" else []
    trainee.peft.eval()
    try:
        with torch.random.fork_rng(used), torch.no_grad(), trainee.autocast():
            yield
    finally:
        trainee.peft.train(training)


def _without_virtual(trainee: Trainee) -> AbstractContextManager[object]:
    """A prompt or prefix is no part of the base's own forward, LoRA is."""
    if not trainee.initial:
        return nullcontext()
    off: AbstractContextManager[object] = trainee.peft.disable_adapter()
    return off


def _wide_states(trainee: Trainee, shape: torch.Size) -> Tensor:
    """Random states (1, T, H) in the type of the backbone, whose logits have SPREAD."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(shape, generator=generator).to(trainee.device)
    states = states.to(trainee.peft.get_base_model().dtype)
    spread = float(trainee.head(states).float().std())
    return states * (SPREAD / spread) if spread else states


@contextmanager
def _in_place_of_states(trainee: Trainee, wide: Tensor) -> Iterator[list[Tensor]]:
    """The head gets `wide` meanwhile; the states that it would have got are in the list."""
    found: list[Tensor] = []

    def replace(_module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        found.append(inputs[0])
        return (wide if inputs[0].shape == wide.shape else inputs[0],)

    hook = trainee.peft.get_base_model().lm_head.register_forward_pre_hook(replace)
    try:
        yield found
    finally:
        hook.remove()


def _states_off(states: Tensor, own: list[Tensor]) -> float:
    if not bool(states.isfinite().all()):
        return 0.0  # the step says so, with its rows, and skips the update
    return _relative(states, own[0].float()) if own else math.inf  # the head may not be called


def _relative(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return math.inf
    scale = float(other.abs().max())
    return float((one - other).abs().max()) / (scale or 1.0)
