"""What a finished run says of itself: facts that are part of the output, and what was measured."""

from pathlib import Path
from typing import Any

from hashtune.training.adapter import weights_file
from hashtune.training.loop import Loop
from hashtune.training.rates import peak_memory_gb, rates
from hashtune.writers import sha256_file


def summarise(loop: Loop, adapter: Path) -> dict[str, Any]:
    """Deterministic facts of the run, for reports/train.json."""
    progress = loop.progress
    losses = [point["train/loss"] for point in progress.points if "train/loss" in point]
    evals = {point["step"]: point["eval/loss"] for point in progress.points if "eval/loss" in point}
    return {
        "adapter_sha256": sha256_file(weights_file(adapter)),
        "steps": progress.step,
        "stopped_early": loop.stopped_early and progress.step < len(loop.plan.steps),
        "skipped_steps": len(progress.skipped),
        "signals": [str(signal) for signal in loop.journal.watcher.fired],
        "best_step": progress.best_step,
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "adapter_step": loop.adapter_step,
        "eval_loss": evals[loop.adapter_step] if evals else None,
        "trainable_parameters": sum(p.numel() for p in loop.trainee.parameters.values()),
        "targets": loop.trainee.targets,
    }


def measure(loop: Loop) -> dict[str, Any]:
    """What this machine measured, for reports/machine/train.json."""
    gauge = loop.journal.gauge
    return {
        **rates(loop.meter, gauge),
        "peak_tflops": gauge.peak_tflops,
        "flops_convention": gauge.work.convention,
        "train_seconds": loop.meter.seconds,
        "eval_seconds": loop.meter.eval_seconds,
        "first_step_of_this_process": loop.meter.first_step,
        "peak_memory_gb": peak_memory_gb(),
    }
