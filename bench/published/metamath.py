"""Steps of PEFT's method_comparison/MetaMathQA, with transformers and PEFT themselves.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from hashtune.memory.rehearsal.allocator import Allocator, Block
from hashtune.memory.rehearsal.build import fake_base
from hashtune.memory.rehearsal.events import Events
from hashtune.memory.rehearsal.live import Stage

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


def metamath(
    config: Mapping[str, Any], settings: Settings, found: list[int]
) -> Callable[[Stage], None]:
    """The run as `follow` takes it; the most reserved is appended to `found`."""

    def run(stage: Stage) -> None:
        model = _model(config, settings)
        stage.name(model)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        emptied = []
        outputs = None
        for tokens in (MEAN_TOKENS, settings.tokens):
            emptied.append(len(stage.mode.events.numbers))
            batch = _batch(settings.micro, tokens)
            optimizer.zero_grad()
            stage.phase("forward")
            outputs = model(**batch, num_items_in_batch=settings.micro * tokens)
            stage.phase("backward")
            outputs.loss.backward()
            stage.phase("optimizer")
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        found.append(most_reserved(stage.mode.events, emptied))

    return run


def most_reserved(events: Events, emptied: list[int]) -> int:
    """Peak of the allocator's segments when its cache is emptied before these events."""
    allocator, blocks = Allocator(), dict[int, Block]()
    for index, number in enumerate(events.numbers):
        if index in emptied:
            allocator.empty_cache()
        if number > 0 and (size := events.size(number)):
            blocks[number] = allocator.malloc(size)
        elif -number in blocks:
            allocator.free(blocks.pop(-number))
    return allocator.peak_reserved


def _model(config: Mapping[str, Any], settings: Settings) -> Any:
    base = fake_base(config, dtype=torch.bfloat16)
    if settings.method == "full":
        return base.train()
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(
        r=settings.r,
        lora_alpha=2 * settings.r,
        target_modules=list(settings.targets),
        use_dora=settings.method == "dora",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, adapter).train()


def _batch(micro: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.zeros(micro, tokens, dtype=torch.long)
    with _disable_current_modes():
        mask = torch.ones(micro, tokens, dtype=torch.long)
        mask[-1, -1] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
