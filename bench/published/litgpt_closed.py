"""What LitGPT holds beyond the closed form's words, by formula. Each is a setting of
litgpt_settings.py or an operation of its model; bytes, for one micro-batch of `tokens` positions.

    attention  the product that gives query, key and value is kept whole, where each head has its
               own keys: value is a view of it; else keys and values are kept for all heads
    inputs     those of 4-bit products: two norms' results and the MLP's product; attention's result
               is kept anyway
    unpacked   the head in fp16 beside its copy in bf16
    logits     at the loss: fp32 instead of bf16, and so is their log-softmax
               at the end of a later forward: bf16, fp32, and fp32 of the micro-batch before, with
               all inputs of its 4-bit products
"""

from hashtune.memory.layout import Shape
from published.litgpt_settings import Settings

BF16, FP32 = 2, 4


def beyond(shape: Shape, run: Settings, *, shared_norm: bool) -> dict[str, int]:
    """Bytes by name. `shared_norm`: one norm feeds attention and MLP (Phi)."""
    tokens = run.tokens * run.micro
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    equal = shape.heads == shape.kv_heads
    kept = query + keys if equal else 2 * (query - keys)
    found = {"attention": tokens * shape.layers * kept * BF16}
    if run.quantize != "none":
        found["inputs"] = _inputs(shape, tokens, shared_norm=shared_norm)
        found["unpacked"] = shape.vocab * shape.hidden * BF16
    return found


def logits(shape: Shape, run: Settings, loss: int, *, shared_norm: bool) -> int:
    """Bytes of the logits at the worst moment, in place of `loss`, the closed form's."""
    tokens = run.tokens * run.micro
    count = tokens * shape.vocab
    if run.fp32_logits and run.lora and not run.mixed:
        loss += 2 * count * (FP32 - BF16)
    if run.micro_batches == 1:
        return loss
    later = count * (BF16 + 2 * FP32)
    if run.quantize != "none":
        attended = tokens * shape.layers * shape.heads * shape.head_dim * BF16
        later += _inputs(shape, tokens, shared_norm=shared_norm) + attended
    return max(loss, later)


def _inputs(shape: Shape, tokens: int, *, shared_norm: bool) -> int:
    block = shape.hidden * (1 if shared_norm else 2) + shape.intermediate
    return tokens * (shape.layers * block + shape.hidden) * BF16
