"""LitGPT's LoRA runs with the blocks of transformers and PEFT in LitGPT's place: what is left of
the agreement when only loss, types and optimizer are the measured system's.

Same settings; without quantisation and autocast, which litgpt_step.py alone knows.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hashtune.memory.rehearsal.build import fake_base
from hashtune.memory.rehearsal.live import Stage
from published.closed import module_names
from published.litgpt_linear import dropped
from published.litgpt_settings import Settings
from published.litgpt_step import loss_of, returned


def answers(run: object) -> bool:
    """Whether this run has a counterpart here."""
    if not isinstance(run, Settings):
        return False
    return run.lora is not None and run.quantize == "none" and not run.mixed


def transformers_blocks(config: Mapping[str, Any], run: Settings) -> Callable[[Stage], None]:
    """The run as `follow` takes it: one micro-batch, and the optimizer's step."""

    def step(stage: Stage) -> None:
        model = _model(config, run)
        base = model.get_base_model()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        ids = torch.zeros(run.micro, run.tokens, dtype=torch.long)
        stage.phase("forward")
        states = base.base_model(input_ids=ids, use_cache=False).last_hidden_state
        head = base.get_output_embeddings()
        logits = returned([head(part) for part in states.split(run.head_chunk, dim=1)], run)
        stage.phase("loss")
        loss = loss_of(logits, ids, run)
        stage.phase("backward")
        loss.backward()
        stage.phase("optimizer")
        optimizer.step()

    return step


class Dropped(nn.Module):
    """Dropout whose mask is bytes, as on CUDA."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.rate)


def _model(config: Mapping[str, Any], run: Settings) -> Any:
    from peft import LoraConfig, get_peft_model

    untied = {**config, "tie_word_embeddings": False}
    adapter = LoraConfig(
        r=run.lora.r,
        lora_dropout=run.lora.dropout,
        target_modules=list(module_names(config, run.lora.parts)),
        task_type="CAUSAL_LM",
    )
    attention = "eager" if config["model_type"] == "gemma2" else "sdpa"
    base = fake_base(untied, dtype=torch.bfloat16, attention=attention)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
        model = get_peft_model(base, adapter, autocast_adapter_dtype=False).train()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout) and child.p:
                setattr(module, name, Dropped(child.p))
    return model
