"""What a finished run says of itself: facts that are part of the output, and what was measured."""

import resource
from pathlib import Path
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.training.adapter import WEIGHTS
from hashtune.training.loop import Loop
from hashtune.training.tokens import still_tokens
from hashtune.writers import sha256_file


def summarise(loop: Loop, adapter: Path) -> dict[str, Any]:
    """Deterministic facts of the run, for reports/train.json.

    Raises InputError when updates were made but the row of an added token is what it was.
    """
    progress = loop.progress
    still = still_tokens(loop.trainee.peft)
    if progress.updates and still:
        message = f"the rows of the added tokens {still} did not move"
        raise InputError(Finding("untrained-tokens", message, field="tokenizer.added_tokens"))
    losses = [point["train/loss"] for point in progress.points if "train/loss" in point]
    evals = {point["step"]: point["eval/loss"] for point in progress.points if "eval/loss" in point}
    return {
        "adapter_sha256": sha256_file(adapter / WEIGHTS),
        "steps": progress.step,
        "stopped_early": loop.stopped_early and progress.step < len(loop.plan.steps),
        "skipped_steps": len(progress.skipped),
        "best_step": progress.best_step,
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "adapter_step": loop.adapter_step,
        "eval_loss": evals[loop.adapter_step] if evals else None,
        "trainable_parameters": sum(p.numel() for p in loop.trainee.parameters.values()),
        "targets": loop.trainee.targets,
    }


def measure(loop: Loop) -> dict[str, Any]:
    """What this machine measured, for reports/machine/train.json.

    model_tflops counts 4N floating-point operations per token for LoRA (2N forward, 2N backward
    through the N frozen parameters), without the attention term.
    """
    meter, trainee = loop.meter, loop.trainee
    trainable = sum(p.numel() for p in trainee.parameters.values())
    frozen = sum(p.numel() for p in trainee.peft.parameters()) - trainable
    rate = meter.tokens / meter.seconds if meter.seconds else 0.0
    return {
        "tokens_per_second": rate,
        "trained_tokens_per_second": meter.trained_tokens / meter.seconds if rate else 0.0,
        "model_tflops": 4 * frozen * rate / 1e12,
        "flops_convention": "4N per token: forward 2N, backward through the frozen base 2N",
        "train_seconds": meter.seconds,
        "eval_seconds": meter.eval_seconds,
        "first_step_of_this_process": meter.first_step,
        "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }
