"""Rules of thumb that others plan with, beside the formulas of this project: what they say, and the
assumptions that they make without naming them.

    gpt_block      34 s b h a layer, and 5 a s^2 b of scores (Korthikanti et al. 2022, arXiv
                   2205.05198, equation 1: GPT with a 4h GELU MLP, all heads, 16 bits, dropout);
                   within 30 % for other decoders
    bytes a        full: 2 + 2 + 8, bf16 weights and gradients, fp32 moments, no master copy;
    parameter      LoRA: 2 of a bf16 base, 2 + 8 of the adapter, no gradients; 4 bits: 0.5
"""

import re
from typing import Literal

GPT_BLOCK = 34
GPT_SCORES = 5
IN_A_NAME = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z])", re.IGNORECASE)


def nominal_parameters(name: str) -> int | None:
    """The parameters that a model's name says, "Llama-3.1-8B": 8e9, where it has 8,030,261,248;
    None when it says none."""
    found = IN_A_NAME.search(name)
    if found is None:
        return None
    return round(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6))


def gpt_activations(
    *,
    layers: int,
    tokens: int,
    rows: int,
    hidden: int,
    heads: int,
    kept: Literal["eager", "flash", "checkpointed"],
) -> int:
    """Bytes of a step's activations by Korthikanti et al.: with scores, without them, and with
    every layer's 2 s b h of input and one layer whole."""
    sbh = tokens * rows * hidden
    if kept == "checkpointed":
        return layers * 2 * sbh + GPT_BLOCK * sbh
    scores = GPT_SCORES * heads * tokens * tokens * rows if kept == "eager" else 0
    return layers * (GPT_BLOCK * sbh + scores)


def static_state(
    *, parameters: int, method: Literal["full", "lora", "qlora"], adapter: int = 0
) -> float:
    """Bytes before activations by the second rule."""
    if method == "full":
        return parameters * (2 + 2 + 8)
    return parameters * (2 if method == "lora" else 0.5) + adapter * (2 + 8)
