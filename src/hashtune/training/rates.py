"""How fast this machine trains and what that takes: never part of an output."""

import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hashtune.records import Row
from hashtune.training.model import Trainee
from hashtune.training.utilisation import TERA, Work, attention_sizes, utilisation

GB = 1e9


@dataclass(slots=True)
class Meter:
    """Sums over the steps of this process. `squares` are those of document lengths."""

    seconds: float = 0.0
    tokens: int = 0
    trained_tokens: int = 0
    squares: int = 0
    steps: int = 0
    eval_seconds: float = 0.0
    first_step: int = 1

    def add(self, rows: Sequence[Row], *, trained_tokens: int, seconds: float) -> None:
        """Count one step."""
        lengths = [length for row in rows for length in row.lengths]
        self.seconds += seconds
        self.tokens += sum(lengths)
        self.trained_tokens += trained_tokens
        self.squares += sum(length * length for length in lengths)
        self.steps += 1

    def since(self, earlier: "Meter") -> "Meter":
        """The steps after `earlier`, which is a copy of this meter as it was."""
        return Meter(
            seconds=self.seconds - earlier.seconds,
            tokens=self.tokens - earlier.tokens,
            trained_tokens=self.trained_tokens - earlier.trained_tokens,
            squares=self.squares - earlier.squares,
            steps=self.steps - earlier.steps,
            eval_seconds=self.eval_seconds - earlier.eval_seconds,
            first_step=self.first_step + earlier.steps,
        )

    @property
    def context(self) -> float:
        """Mean length of the document that a token lies in: lengths 3 and 1 give (9 + 1) / 4."""
        return self.squares / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Gauge:
    """What turns tokens per second into utilisation. `peak_tflops` is None where the machine that
    the spec describes is not the one that trains."""

    work: Work
    peak_tflops: float | None


def gauge_of(trainee: Trainee, *, peak_tflops: float | None) -> Gauge:
    """The gauge of a model."""
    model = trainee.peft.get_base_model()
    layers, heads, head_dim = attention_sizes(model.config.get_text_config().to_dict())
    trainable = _count(trainee.parameters.values())
    again = [module for module in model.modules() if _recomputed(module)]
    return Gauge(
        Work(
            frozen=_count(model.parameters()) - trainable,
            trainable=trainable,
            layers=layers,
            width=heads * head_dim,
            again=sum(_count(block.parameters()) for block in again),
            layers_again=len(again),
        ),
        peak_tflops,
    )


def _recomputed(module: nn.Module) -> bool:
    """Whether the backward computes this block again; the whole model carries the flag too."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer) and bool(module.gradient_checkpointing)


def _count(parameters: Iterable[nn.Parameter]) -> int:
    """Parameters; bitsandbytes packs two 4-bit ones into a byte."""
    return sum(
        p.numel() * (2 * p.element_size() if type(p).__name__ == "Params4bit" else 1)
        for p in parameters
    )


def rates(meter: Meter, gauge: Gauge) -> dict[str, Any]:
    """Speed, step size and utilisation over the meter's steps; None where nothing was measured.

    Tokens are those that are not padding; mfu and hfu are shares of the declared peak.
    """
    speed = meter.tokens / meter.seconds if meter.seconds else 0.0
    model = gauge.work.model_flops(context=meter.context)
    hardware = gauge.work.hardware_flops(context=meter.context)
    shares: dict[str, float | None] = {"mfu": None, "hfu": None}
    if gauge.peak_tflops is not None and speed:
        for name, flops in (("mfu", model), ("hfu", hardware)):
            shares[name] = utilisation(
                flops, tokens_per_second=speed, peak_tflops=gauge.peak_tflops
            )
    return {
        "tokens_per_second": speed,
        "trained_tokens_per_second": meter.trained_tokens / meter.seconds if speed else 0.0,
        "tokens_per_step": meter.tokens / max(1, meter.steps),
        "trained_tokens_per_step": meter.trained_tokens / max(1, meter.steps),
        "model_tflops": model * speed / TERA,
        **shares,
    }


def peak_memory_gb() -> float:
    """The most this process held, in GB of 1e9 bytes: where it uses CUDA what torch allocated
    there, else resident memory, libraries included."""
    if torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated() / GB)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
