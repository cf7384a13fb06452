"""A base with a prompt or prefix, called as `generate` and `choices` call any model.

PEFT's own forward would put the virtual tokens before each new token again, and drops the position
ids that keep padding out; here they go before the first call's tokens, whatever pads those.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import Tensor, nn

from hashtune.store.soft_prompts import count, has_virtual_tokens, with_virtual_tokens


class WithVirtualTokens:
    """Virtual tokens, then what the call gives. `virtual_tokens` take as many positions."""

    def __init__(self, peft: Any) -> None:
        self.peft = peft
        self.config = peft.get_base_model().config
        self.virtual_tokens = count(peft)

    def disable_adapter(self) -> AbstractContextManager[None]:
        """The bare base meanwhile, as PEFT's own models offer it."""
        off: AbstractContextManager[None] = self.peft.disable_adapter()
        return off

    def eval(self) -> Self:
        """In eval mode, as every model that is evaluated."""
        self.peft.eval()
        return self

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of base and adapter."""
        parameters: Iterator[nn.Parameter] = self.peft.parameters()
        return parameters

    def __call__(
        self,
        input_ids: Tensor,
        *,
        attention_mask: Tensor,
        position_ids: Tensor | None = None,
        cache: Any = None,
        use_cache: bool,
        logits_to_keep: int | Tensor,
    ) -> Any:
        """As a causal language model of transformers; the logits are of `input_ids` alone.

        Args:
            input_ids: (B, T), one document in each row.
            attention_mask: (B, all tokens so far), 0 for padding.
            position_ids: (B, T), from 0 at each document's first token; None: no padding before it.
            cache: of the call before, or None in the first.
            use_cache: whether to return one.
            logits_to_keep: the last so many, or indices into T.
        """
        base = self.peft.get_base_model()
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
            position_ids = position_ids.expand(len(input_ids), -1)
        inputs = {"input_ids": input_ids, "position_ids": position_ids, "cache": cache}
        if has_virtual_tokens(self.peft):
            ahead = attention_mask.new_ones(len(input_ids), self.virtual_tokens)
            attention_mask = torch.cat([ahead, attention_mask], dim=1)
            if cache is not None:
                inputs["position_ids"] = position_ids + self.virtual_tokens
            else:
                inputs = with_virtual_tokens(self.peft, input_ids, position_ids)
                if "inputs_embeds" in inputs and isinstance(logits_to_keep, Tensor):
                    logits_to_keep = logits_to_keep + self.virtual_tokens
        return base(
            **inputs,
            attention_mask=attention_mask,
            use_cache=use_cache,
            logits_to_keep=logits_to_keep,
        )
