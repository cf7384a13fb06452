"""Attention inside documents only, by one causal call for each document instead of a mask.

The mask of a row of T tokens makes attention compute T x T products and throw most of them away;
calls for each document compute what is needed, and nothing of size T x T is built. What that saves
beside the mask, and beside one call over documents padded to the longest, bench/attention.py
measures (docs/log.md).

    two rows, B x T:      a0 a1 a2 b0 b1 _ | c0 c1 c2 c3 c4 c5
    flattened and split:  [a0 a1 a2] [b0 b1] [_] [c0 c1 c2 c3 c4 c5]
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hashtune.errors import Finding, InputError
from hashtune.records import Row
from hashtune.spec.schema import Attention, Kernels
from hashtune.training.batches import Batch, Lengths
from hashtune.training.fused.attach import plain_products
from hashtune.training.fused.attention import CausalAttention

# names among the attention functions of transformers
DOCUMENTS = "hashtune_documents"
FUSED = "hashtune_documents_fused"
NO_MASK = torch.uint8  # type of what stands in for a mask; attention takes bool or floats
OTHER_FORMULAS = ("softcap", "s_aux", "position_bias")  # of logits; SDPA has none of them


def attend_as(
    base: Any, attention: Attention, rows: Sequence[Row], kernels: Kernels = "plain"
) -> None:
    """Set how the base attends, before the adapter is put on it.

    On a CPU `fused` kernels attend to a document in our own products (fused/attention.py).
    Without `documents`, as in generation, document attention is SDPA. Raises InputError where a
    mask would hide the base's sliding window.
    """
    if attention == "mask":
        _check_window(base.config, rows)
        return
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    fused = kernels == "fused" and base.device.type == "cpu"
    AttentionInterface.register(DOCUMENTS, attend)
    AttentionInterface.register(FUSED, partial(attend, fused=True))
    for name in (DOCUMENTS, FUSED):
        AttentionMaskInterface.register(name, sdpa_mask)
    base.set_attn_implementation(FUSED if fused else DOCUMENTS)


def attention_inputs(config: Any, batch: Batch, device: torch.device) -> dict[str, Any]:
    """What a backbone of this configuration is called with, so that documents stay apart."""
    if config._attn_implementation not in {DOCUMENTS, FUSED}:
        mask = batch.mask
        return {"attention_mask": None if mask is None else mask.to(device)}
    # transformers builds no mask where it is given one of four dimensions; `attend` ignores it
    return {
        "attention_mask": torch.zeros(1, 1, 1, 1, dtype=NO_MASK, device=device),
        "documents": batch.lengths,
    }


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    documents: Lengths | None = None,
    sliding_window: int | None = None,
    fused: bool = False,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function, called by the model's layers.

    Args:
        module: the attention layer.
        query, key, value: (B, heads, T, d); key and value may have fewer heads.
        attention_mask: only read without `documents`.
        dropout: probability, 0 in evaluation.
        scaling: factor of the scores; None is 1 / sqrt(d).
        documents: lengths of each sequence's documents; tokens behind them are padding.
        sliding_window: a token sees itself and so many less one before it.
        fused: a document that needs neither dropout nor a window goes through CausalAttention.

    Returns:
        The result (B, T, heads, d), zero at padding of packed sequences, and no weights.

    Raises:
        InputError: the layer changes its scores in a way that SDPA does not, or was not told the
            documents that the backbone was called with.
    """
    if documents is None:
        _refuse_lost_documents(attention_mask)
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        plain: tuple[Tensor, None] = sdpa_attention_forward(
            *(module, query, key, value, attention_mask),
            dropout=dropout,
            scaling=scaling,
            sliding_window=sliding_window,
            **others,
        )
        return plain
    refuse_other_formulas([name for name in OTHER_FORMULAS if others.get(name) is not None])
    call = partial(
        scaled_dot_product_attention,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    batch, heads, length, width = query.shape
    fused = fused and not dropout
    one = partial(_fused, call, scaling or width**-0.5) if fused else partial(_causal, call)
    if all(len(lengths) == 1 for lengths in documents) and not (fused and batch > 1):
        documents = ((length,),) * batch  # padding at the right end sees; nothing sees it
        if batch == 1 or sliding_window is None or length <= sliding_window:
            return one(query, key, value, sliding_window).contiguous(), None
    sizes = [size for lengths in documents for size in (*lengths, length - sum(lengths))]
    padding = [end for lengths in documents for end in (*(False for _ in lengths), True)]
    parts = zip(*(_flat(tensor).split(sizes, dim=2) for tensor in (query, key, value)), strict=True)
    results = [
        v.new_zeros(1, q.shape[2], heads, v.shape[-1]) if end else one(q, k, v, sliding_window)
        for (q, k, v), end in zip(parts, padding, strict=True)
    ]
    return torch.cat(results, dim=1).view(batch, length, heads, -1), None


def _flat(tensor: Tensor) -> Tensor:
    """(B, heads, T, d) to (1, heads, B * T, d)."""
    return tensor.transpose(1, 2).flatten(0, 1)[None].transpose(1, 2)


def _fused(  # noqa: PLR0917  the first two are bound
    call: Any, scale: float, query: Tensor, key: Tensor, value: Tensor, window: int | None
) -> Tensor:
    if window is not None and query.shape[2] > window:
        return _causal(call, query, key, value, window)
    if torch.is_autocast_enabled(query.device.type):  # as it does to SDPA's arguments
        lower = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(lower), key.to(lower), value.to(lower)
    with plain_products(query.device):
        result: Tensor = CausalAttention.apply(query, key, value, scale)
    return result


def _causal(call: Any, query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """One document, (1, n, heads, d). Only one that is longer than the window needs a mask."""
    length = query.shape[2]
    if window is None or length <= window:
        result: Tensor = call(query, key, value, is_causal=True)
    else:
        band = torch.ones(length, length, dtype=torch.bool, device=query.device)
        result = call(query, key, value, attn_mask=band.tril().triu(1 - window))
    return result.transpose(1, 2)


def _refuse_lost_documents(attention_mask: Tensor | None) -> None:
    """Some layers of transformers pass on no further arguments."""
    if attention_mask is not None and attention_mask.dtype == NO_MASK:
        message = "the layers of this base do not pass on which documents a row holds"
        fix = "batch.attention=mask"
        raise InputError(Finding("unsupported-model", message, field="batch.attention", fix=fix))


def refuse_other_formulas(given: Sequence[str]) -> None:
    """Raise InputError naming what a layer changes its scores with, if anything."""
    if given:
        message = f"the layers of this base change their scores ({', '.join(given)})"
        fix = "use another base"
        raise InputError(Finding("unsupported-model", message, field="base_model", fix=fix))


def _check_window(config: Any, rows: Sequence[Row]) -> None:
    """A mask of ours takes the place of the model's own, which alone knows the window."""
    window = getattr(config, "sliding_window", None)
    longest = max((length for row in rows for length in row.lengths), default=0)
    packed = any(len(row.lengths) > 1 for row in rows)
    if packed and window is not None and longest > window:
        message = f"a document has {longest} tokens, and this base sees {window} at once"
        fix = "batch.attention=documents, which keeps to the window"
        raise InputError(Finding("sliding-window", message, field="batch.attention", fix=fix))
