"""Prompt and prefix tuning: trained virtual tokens before each document, as PEFT puts them there.

    prompt  embeddings at positions 0 to V - 1, before those of the tokens
            (Lester et al. 2021, arXiv 2104.08691)
    prefix  V keys and values for each layer, which attention finds in its cache
            (Li and Liang 2021, arXiv 2101.00190)

Token t of a document has position V + t in both. PEFT's own forward drops position ids, so that
padding at the left would move a prompt; tests compare the two where there is no such padding.
"""

from typing import Any

import torch
from torch import Tensor


def has_virtual_tokens(peft: Any) -> bool:
    """Whether the active adapter is a prompt or prefix and not switched off."""
    return bool(peft.active_peft_config.is_prompt_learning) and not peft._adapters_disabled


def count(peft: Any) -> int:
    """Virtual tokens of the active adapter."""
    return int(peft.active_peft_config.num_virtual_tokens)


def with_virtual_tokens(peft: Any, input_ids: Tensor, position_ids: Tensor) -> dict[str, Any]:
    """What the base or its backbone is called with for documents (B, T), one in each row.

    `position_ids` (B, T) count from 0 at each document's first token. A prompt makes V + T states
    of T tokens, a prefix T.
    """
    shifted = position_ids + count(peft)
    virtual = peft.get_prompt(len(input_ids))
    if not isinstance(virtual, Tensor):
        return {"input_ids": input_ids, "position_ids": shifted, "cache": virtual}
    tokens = peft.get_base_model().get_input_embeddings()(input_ids)
    first = torch.arange(count(peft), device=shifted.device).expand(len(input_ids), -1)
    return {
        "inputs_embeds": torch.cat([virtual.to(tokens.dtype), tokens], dim=1),
        "position_ids": torch.cat([first, shifted], dim=1),
    }
