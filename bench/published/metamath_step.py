"""Steps of PEFT's method_comparison/MetaMathQA, with transformers and PEFT themselves."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from hashtune.memory.rehearsal.allocator import Allocator, Block
from hashtune.memory.rehearsal.build import fake_base
from hashtune.memory.rehearsal.events import Events
from hashtune.memory.rehearsal.live import Stage
from published.metamath_settings import MEAN_TOKENS, Settings


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
        return get_peft_model(base, adapter).train()


def _batch(micro: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.zeros(micro, tokens, dtype=torch.long)
    with _disable_current_modes():
        mask = torch.ones(micro, tokens, dtype=torch.long)
        mask[-1, -1] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
