"""Proof on the real model, before training: no layer's own mask hides what training lets it see.

`batch.attention: documents`, and a mask of documents, take the place of the masks that a model
makes for its layers. Attention by document knows a sliding window, where the layer passes it on; it
knows no chunks (Llama 4) and no window that the model keeps to itself (Qwen2-MoE, Phi-MoE). So the
model's own forward runs once over the beginning of the longest planned document, with attention
that computes nothing and only reads the masks.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.training.documents import OTHER_FORMULAS, refuse_other_formulas
from hashtune.training.model import Trainee
from hashtune.training.own_values import probing

RECORDER = "hashtune_own_masks"  # among the attention functions of transformers
LOCAL = re.compile("window|chunk|local")  # in names of numbers in config.json that may be a reach
TOKENS = 32  # of a document that no local attention cuts
QUERIES = 64  # the last ones see what a window or chunk hides from them


@dataclass(frozen=True, slots=True)
class Seen:
    """What the layers' own masks over `tokens` tokens were: how many layers attended, how many of
    them not to all that lies before, how many in another way than attention by document; and names
    of what changes their scores."""

    tokens: int
    layers: int
    local: int
    other: int
    formulas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One call: does the layer's mask show all before a token; is it that of documents.attend."""

    whole: bool
    known: bool
    formulas: tuple[str, ...]


def read_masks(trainee: Trainee, rows: Sequence[Row]) -> Seen:
    """Read the layers' own masks over the longest document's beginning: one token more than the
    largest reach in the configuration that the document exceeds. The model is left as it was."""
    base = trainee.peft.get_base_model()
    ids = _longest_document(rows)
    reaches = local_sizes(base.config.get_text_config().to_dict())
    tokens = max([TOKENS, *(size + 1 for size in reaches if size < len(ids))])
    inputs = torch.tensor([ids[:tokens]], device=trainee.device)
    layers = _recorded(trainee, base, inputs)
    return Seen(
        tokens=inputs.shape[1],
        layers=len(layers),
        local=sum(not layer.whole for layer in layers),
        other=sum(not layer.known for layer in layers),
        formulas=tuple(sorted({name for layer in layers for name in layer.formulas})),
    )


def check_masks(seen: Seen, *, documents: bool, packed: bool) -> None:
    """Raise InputError when training would let a layer see what its own mask hides, or take
    another formula than the layer's.

    Args:
        seen: as `read_masks` gives it.
        documents: attention by document; else a mask where rows are packed, else the model's own.
        packed: sequences hold several documents.
    """
    # SDPA adds a bias of positions itself
    refuse_other_formulas([n for n in seen.formulas if documents or n != "position_bias"])
    plain = "batch.attention=mask with data.packing=false, or shorter documents"
    what = f"layers have masks of their own over a document of {seen.tokens} tokens"
    if documents and seen.other:
        message = f"{seen.other} of {seen.layers} {what}, which attention by document does not know"
        raise InputError(_fault(message, plain))
    if packed and not documents and seen.local:
        message = f"{seen.local} of {seen.layers} {what}, and one of documents takes their place"
        fix = plain if seen.other else "batch.attention=documents, which keeps to the window"
        raise InputError(_fault(message, fix))


def _fault(message: str, fix: str) -> Finding:
    file, field = "params.yaml", "batch.attention"
    return Finding("local-attention", message, file=file, field=field, fix=fix)


def local_sizes(config: Mapping[str, Any]) -> list[int]:
    """Numbers of a configuration that may say how far a layer sees; more than do is no harm."""
    named = (value for name, value in config.items() if LOCAL.search(name))
    return sorted({value for value in named if type(value) is int and value > 0})


def _longest_document(rows: Sequence[Row]) -> list[int]:
    longest: tuple[int, Row, int] | None = None
    for row in rows:
        start = 0
        for length in row.lengths:
            if longest is None or length > longest[0]:
                longest = (length, row, start)
            start += length
    assert longest is not None, "a plan has rows"
    length, row, start = longest
    return row.input_ids[start : start + length]


def _recorded(trainee: Trainee, base: Any, inputs: Tensor) -> list[Layer]:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    found: list[Layer] = []
    AttentionInterface.register(RECORDER, partial(record, found))
    AttentionMaskInterface.register(RECORDER, sdpa_mask)
    before = base.config._attn_implementation
    base.set_attn_implementation(RECORDER)
    try:
        with probing(trainee):
            base.model(input_ids=inputs, use_cache=False)
    finally:
        base.set_attn_implementation(before)
    return found


def record(  # noqa: PLR0917  as transformers calls it; the first is bound
    found: list[Layer],
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """An attention function that adds to `found` what its mask shows. It computes nothing: zeros
    (B, T, heads, d of value) and no weights."""
    length = query.shape[2]
    places = torch.arange(length, device=query.device)
    back = places[-QUERIES:, None] - places  # (queries, T): how far before the query a key lies
    whole = back >= 0
    known = whole if sliding_window is None else whole & (back < sliding_window)
    if attention_mask is None:
        shown = whole if getattr(module, "is_causal", True) else whole | True
    else:
        shown = attention_mask[0, :, -QUERIES:]
        shown = shown if shown.dtype == torch.bool else shown == 0
    names = tuple(name for name in OTHER_FORMULAS if others.get(name) is not None)
    found.append(Layer(bool((shown == whole).all()), bool((shown == known).all()), names))
    return value.new_zeros(value.shape[0], length, query.shape[1], value.shape[-1]), None
