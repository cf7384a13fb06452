"""What PEFT's method_comparison/MetaMathQA holds, as settings.

Facts of huggingface/peft, method_comparison/MetaMathQA, read at run.py
026d1e0164165fcb4a2a98cd9b37af619745d8b3, utils.py 013424400cdc3ac2bf6cdf5555d83d8808ffe153, data.py
03be25e348beb51282dd8e39b0edceeb8e6a104f, default_training_params.json
405490ef6b1eb2ebe017b4c749f95c74df4dbf3a, and the train_config of each result file:

    dtype bfloat16, no autocast (use_amp false), autocast_adapter_dtype true: the adapter is fp32
    batch_size 4, rows padded to the longest of the batch, max_seq_length 768; no checkpointing
    BucketIterator: buckets of 20 batches, each sorted from long to short
    torch.optim.AdamW over all tensors at once; zero_grad before the forward; grad_norm_clip 1.0
    the loss is transformers' own, over fp32 logits of every position
    torch.cuda.empty_cache() every 10 steps, so always just before a bucket's longest batch
    accelerator_memory_max: max_memory_reserved() minus what was reserved at the start
    mean length of a row: "train total tokens" / "train samples" of the result files, 210

The longest row is not published: data.py drops texts above 1,300 characters, since 768 tokens have
1,304 of them, and cuts at 768. So 768 is taken. One row of the four is taken to be shorter, since a
batch of equal rows has no mask.
"""

from dataclasses import dataclass
from typing import Literal

MEAN_TOKENS = 210
QUERY_VALUE = ("q_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Settings:
    """One experiment. `r` and `targets` of its adapter_config.json; method full has none."""

    method: Literal["full", "lora", "dora"]
    r: int = 0
    targets: tuple[str, ...] = QUERY_VALUE
    tokens: int = 768
    micro: int = 4
