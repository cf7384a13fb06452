"""What LitGPT's fine-tuning holds, as named settings. Each is a fact of its source, none a fit.

Revisions of Lightning-AI/litgpt that were read:

    2023    finetune/lora.py at cc190152085ac60fe708455b2df8877f82d37087, lit_gpt/model.py at
            e51aaef228cd93078c5a876e1dbe624a3b6b925c, lit_gpt/lora.py at
            2b48d81ce63dce88de6d4dff8439fb9ff2c8fac5, lit_gpt/rmsnorm.py at
            98898cab869d07e44a8ac73c70bfd1e6005a8815; with bitsandbytes 0.41.1 (the tables' own
            heading: PyTorch 2.1.0, bitsandbytes 0.41.1, 10/20/2023)
    2024    the wheels litgpt 0.4.0 (2024-06-10), 0.4.9 (08-08), 0.4.13 (09-27) and 0.5.0 (10-04),
            with bitsandbytes 0.42.0, which their metadata pins
"""

from dataclasses import dataclass
from typing import Literal

Part = Literal["query", "key", "value", "projection", "mlp", "head"]
QUERY_VALUE: tuple[Part, ...] = ("query", "value")
ALL: tuple[Part, ...] = ("query", "key", "value", "projection", "mlp", "head")


@dataclass(frozen=True, slots=True)
class Lora:
    """`parts` are the lora_* switches; dropout as in the yaml or at the top of finetune/lora.py."""

    r: int
    parts: tuple[Part, ...] = QUERY_VALUE
    dropout: float = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """One run of LitGPT.

    lora: None is finetune/full.py.
    tokens, micro: length of the longest row, rows of a micro-batch (all padded to the longest of
        the batch: get_batch, get_sft_collate_fn).
    quantize: bnb.nf4 or bnb.nf4-dq, which packs every linear module, the head included
        (BitsandbytesPrecision without ignore_modules; lit_gpt/utils.py quantization()).
    mixed: bf16-mixed: fp32 weights, autocast. Else bf16-true: weights, adapter, gradients and
        moments in bf16 (HalfPrecision of lightning.fabric; torch.optim.AdamW of those parameters).
    head_chunk: lm_head_chunk_size=128 in finetune/lora.py; finetune/full.py has none.
    loss_chunk: chunk_size=128 of chunked_cross_entropy, whose chunks are all kept.
    fp32_logits: lightning.fabric gives a module's outputs back in fp32 (convert_output).
    keeps_inputs: bitsandbytes 0.41 and 0.42 keep the input of each 4-bit product as an attribute of
        its autograd node (MatMul4Bit: ctx.tensors = (A, B)), so it lives as long as the graph does,
        and the loop's variable `logits` holds the graph through the next forward. 0.43 keeps none.
    half_state: weights are packed from fp16 (Params4bit.cuda; _Linear4bit.quantize), so unpacking
        gives fp16 and then its copy in bf16 (F.dequantize_4bit(B, state).to(A.dtype)).
    stable_embedding: litgpt 0.5.0 puts bitsandbytes' StableEmbedding in the embedding's place when
        quantised: a layer norm behind it, and a gradient for both that no optimizer ever clears.
        Not in 0.4.13, the first that knows Llama 3.2, nor in those before.
    micro_batches: how many of the longest are rehearsed. 2023's loop puts the longest row into the
        first micro-batch and draws the others (longest_seq_ix if iter_num == 0), so 1, with no
        moments there yet. 2024's loop draws all; the worst is two of the longest in a row, with the
        moments there and, when more than one makes a step, the gradients of the one before.
    accumulates: global_batch_size is more than micro_batch_size.
    """

    tokens: int
    micro: int
    lora: Lora | None
    quantize: Literal["none", "nf4", "nf4-dq"] = "none"
    mixed: bool = False
    head_chunk: int = 128
    loss_chunk: int = 128
    fp32_logits: bool = True
    keeps_inputs: bool = True
    half_state: bool = True
    stable_embedding: bool = False
    micro_batches: int = 1
    accumulates: bool = True
