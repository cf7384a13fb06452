"""A quantised base made ready for training: PEFT's preparation, and weights that stay as stored.

On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks each NF4 weight in place at its first forward
in eval mode, with its scales rounded to bf16, for a kernel that has no backward: after the first
evaluation the layers below would get no gradient through it, and a resumed run other weights.
"""

from typing import Any

REPACKS = "support_avx512bf16_for_cpu"  # bitsandbytes/nn/modules.py, Linear4bit.forward


def prepare_quantised(base: Any) -> Any:
    """The quantised base as PEFT prepares it, whose weights no forward repacks."""
    from peft import prepare_model_for_kbit_training

    base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    for module in base.modules():
        if hasattr(module, REPACKS):
            setattr(module, REPACKS, False)
    return base
