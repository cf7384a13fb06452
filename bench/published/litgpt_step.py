"""Steps of LitGPT's loop, for the rehearsal's engine."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from hashtune.memory.rehearsal.live import Stage
from published.litgpt_arch import arch_of
from published.litgpt_linear import Linears
from published.litgpt_model import Gpt
from published.litgpt_settings import Settings


def litgpt(config: Mapping[str, Any], settings: Settings) -> Callable[[Stage], None]:
    """The run as `follow` takes it."""

    def run(stage: Stage) -> None:
        model = _model(config, settings)
        stage.name(model)
        cos, sin = (torch.empty(settings.tokens, model.arch.rotary) for _ in range(2))
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = _optimizer(trained, settings)
        if optimizer is not None and settings.micro_batches > 1:
            _make_moments(optimizer)
        ids = torch.zeros(settings.micro, settings.tokens, dtype=torch.long)
        for steps in _micro_batches(settings):
            stage.phase("forward")
            with _precision(settings):
                logits = returned(model(ids, cos, sin, settings.head_chunk), settings)
                stage.phase("loss")
                loss = loss_of(logits, ids, settings)
            stage.phase("backward")
            loss.backward()
            if steps:
                stage.phase("optimizer")
                _step(optimizer, trained)

    return run


def _micro_batches(settings: Settings) -> list[bool]:
    """Whether the optimizer steps after each micro-batch."""
    last = settings.micro_batches - 1
    return [not settings.accumulates or 0 < i == last for i in range(settings.micro_batches)]


def _make_moments(optimizer: torch.optim.Optimizer) -> None:
    """As an earlier step has left them."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": torch.tensor(1.0), **moments}


def _step(optimizer: torch.optim.Optimizer | None, trained: list[nn.Parameter]) -> None:
    if optimizer is not None:
        optimizer.step()
    for parameter in trained:
        if not getattr(parameter, "never_cleared", False):
            parameter.grad = None


def _precision(settings: Settings) -> AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=torch.bfloat16) if settings.mixed else nullcontext()


def _model(config: Mapping[str, Any], settings: Settings) -> Gpt:
    """bf16, or fp32 under bf16-mixed; only LoRA's matrices are trained, or everything."""
    quantised = settings.quantize != "none"
    linears = Linears(
        settings.lora,
        packed=quantised,
        double=settings.quantize == "nf4-dq",
        keeps_inputs=settings.keeps_inputs,
        half_state=settings.half_state,
    )
    before = torch.get_default_dtype()
    with _disable_current_modes(), torch.device("meta"):
        torch.set_default_dtype(torch.float32 if settings.mixed else torch.bfloat16)
        try:
            model = Gpt(arch_of(config), linears)
        finally:
            torch.set_default_dtype(before)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = settings.lora is None or "lora_" in name
    if settings.stable_embedding:
        model.wte = StableEmbedding(model.wte.weight)
    _fill(model)
    if settings.stable_embedding:
        for parameter in model.wte.parameters():
            parameter.never_cleared = True
    return model


def _fill(model: nn.Module) -> None:
    """Tensors in place of those on the meta device, made where they are followed."""
    for module in model.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                made = torch.empty(weight.shape, dtype=weight.dtype)
                module._parameters[name] = nn.Parameter(made, weight.requires_grad)
        for name, buffer in list(module._buffers.items()):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


class StableEmbedding(nn.Module):
    """bitsandbytes' embedding with a layer norm; its parameters ask for gradients."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty_like(weight))
        self.norm = nn.LayerNorm(weight.shape[1], device=weight.device, dtype=weight.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(functional.embedding(ids, self.weight)).to(self.weight.dtype)


def _optimizer(trained: list[nn.Parameter], settings: Settings) -> torch.optim.Optimizer | None:
    """AdamW over all tensors at once, torch's choice on CUDA. PagedAdamW, which goes with 4-bit
    weights, keeps its moments in managed memory, which torch does not count."""
    if settings.quantize != "none":
        return None
    return torch.optim.AdamW(trained, foreach=True)


def returned(logits: Tensor | list[Tensor], settings: Settings) -> Tensor | list[Tensor]:
    """What lightning.fabric hands out."""
    if not settings.fp32_logits:
        return logits
    return [part.float() for part in logits] if isinstance(logits, list) else logits.float()


def loss_of(logits: Tensor | list[Tensor], ids: Tensor, settings: Settings) -> Tensor:
    """chunked_cross_entropy: the chunks of the head, or slices of all positions."""
    if isinstance(logits, list):
        logits[-1] = logits[-1][..., :-1, :]
        targets = [part.reshape(-1) for part in ids[..., 1:].split(settings.head_chunk, dim=1)]
        chunks = [part.reshape(-1, part.size(-1)) for part in logits]
    else:
        flat = logits[..., :-1, :].reshape(-1, logits.size(-1))
        chunks = list(flat.split(settings.loss_chunk))
        targets = list(ids[..., 1:].reshape(-1).split(settings.loss_chunk))
    losses = [
        functional.cross_entropy(chunk, target, reduction="none")
        for chunk, target in zip(chunks, targets, strict=True)
    ]
    return torch.cat(losses).sum() / ids[..., 1:].numel()
