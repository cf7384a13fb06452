"""In which types weights, gradients, master copy and optimizer state are kept: the routes by name.

    bytes a trained parameter     weight  gradient  master  AdamW's moments
    fp32_autocast                 4       4         0       8                 16
    bf16_master                   2       2         4       8                 16
    bf16_true                     2       2         0       4                  8
    fp32_adapter                  4       4         0       8                 16

fp32_autocast  torch.autocast over fp32 weights with torch's AdamW, as hashtune and TRL train;
               products are bf16 or fp16, and each keeps its own casts.
bf16_master    DeepSpeed's and Megatron's mixed precision: 2 + 2 + 12 bytes (Rajbhandari et al.
               2020, ZeRO, arXiv 1910.02054, section 3.1). A buffer that adds micro-batches up
               beside the gradients makes it 18 (`accumulation_buffer`).
bf16_true      no master copy and no autocast, as LitGPT's bf16-true and torchtune's dtype=bf16
               train; small updates round to nothing.
fp32_adapter   PEFT's autocast_adapter_dtype without autocast: an fp32 adapter on a bf16 base, its
               products in fp32 (peft 0.21, tuners/lora/layer.py, _cast_input_dtype).

torch's optimizers keep moments in the parameter's type (optimizer_state.py); with bf16_master the
parameter they see is the fp32 master.
"""

from typing import Literal

Route = Literal["fp32_autocast", "bf16_master", "bf16_true", "fp32_adapter"]

FP32 = 4
WITH_AUTOCAST: tuple[Route, ...] = ("fp32_autocast",)


def trained_element(route: Route, *, computed: int) -> int:
    """Bytes of an element of a trained weight and of its gradient; `computed`: of a product's."""
    return FP32 if route in ("fp32_autocast", "fp32_adapter") else computed


def master_element(route: Route, *, computed: int) -> int:
    """Bytes of an element of the master copy, 0 where the weight is its own."""
    return FP32 if route == "bf16_master" and computed < FP32 else 0


def state_element(route: Route, *, computed: int) -> int:
    """Bytes of an element of the parameter that the optimizer sees."""
    return max(trained_element(route, computed=computed), master_element(route, computed=computed))
